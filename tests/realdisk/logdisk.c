/*
** logdisk IMAGE LOG MOUNTPOINT: a disk that remembers the order of its writes and flushes.
**
** It is a FUSE file system with two files. `disk` backs a loop device; its content is IMAGE. `control` takes
** marks, and "delay N": from then on each write to `disk` is answered N milliseconds late. LOG receives, in
** order, a record for each write (with its bytes), each cache flush and each mark: one letter (W, F, M), the
** offset (8 bytes), the length (4 bytes), the bytes. The loop device has no FUA, so what a flush record
** follows is durable, and nothing else is.
**
** It speaks the kernel's protocol directly: one thread, one request at a time, no library.
*/
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DISK = 2, CONTROL = 3, LARGEST = 1 << 20 };

static int kernel, image, journal;
static uint64_t disk_size;
static unsigned delay_ms;
static char request[LARGEST + 4096], content[LARGEST];

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t size) {
    struct fuse_out_header head = {.len = sizeof head + size, .error = error, .unique = in->unique};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)body, size}};
    if (writev(kernel, parts, 2) < 0 && errno != ENOENT)
        perror("logdisk: answer");
}

static void record(char what, uint64_t offset, uint32_t length, const void *bytes) {
    struct iovec parts[] = {{&what, 1}, {&offset, 8}, {&length, 4}, {(void *)bytes, length}};
    if (writev(journal, parts, 4) != 13 + (ssize_t)length) {
        perror("logdisk: log");
        exit(1);
    }
}

static struct fuse_attr describe(uint64_t node) {
    struct fuse_attr found = {.ino = node, .nlink = 1, .blksize = 4096};
    found.mode = node == FUSE_ROOT_ID ? S_IFDIR | 0700 : S_IFREG | 0600;
    found.size = node == DISK ? disk_size : 0;
    return found;
}

static void look_up(const struct fuse_in_header *in, const char *name) {
    uint64_t node = !strcmp(name, "disk") ? DISK : !strcmp(name, "control") ? CONTROL : 0;
    struct fuse_entry_out out = {.nodeid = node, .entry_valid = 3600, .attr_valid = 3600, .attr = describe(node)};
    answer(in, node ? 0 : -ENOENT, &out, node ? sizeof out : 0);
}

static void write_disk(const struct fuse_write_in *w, const char *bytes) {
    if (pwrite(image, bytes, w->size, w->offset) != (ssize_t)w->size) {
        perror("logdisk: image");
        exit(1);
    }
    record('W', w->offset, w->size, bytes);
    usleep(delay_ms * 1000);
}

static void serve(struct fuse_in_header *in, void *body) {
    switch (in->opcode) {
    case FUSE_INIT: {
        struct fuse_init_out out = {.major = 7, .minor = 31, .max_write = LARGEST, .max_pages = LARGEST / 4096,
                                    .flags = FUSE_BIG_WRITES | FUSE_MAX_PAGES, .max_background = 16,
                                    .congestion_threshold = 12, .time_gran = 1,
                                    .max_readahead = ((struct fuse_init_in *)body)->max_readahead};
        return answer(in, 0, &out, sizeof out);
    }
    case FUSE_LOOKUP:
        return look_up(in, body);
    case FUSE_GETATTR:
    case FUSE_SETATTR: {
        struct fuse_attr_out out = {.attr_valid = 3600, .attr = describe(in->nodeid)};
        return answer(in, 0, &out, sizeof out);
    }
    case FUSE_OPEN:
    case FUSE_OPENDIR: {
        struct fuse_open_out out = {.open_flags = in->nodeid == CONTROL ? FOPEN_DIRECT_IO : 0};
        return answer(in, 0, &out, sizeof out);
    }
    case FUSE_READ: {
        struct fuse_read_in *r = body;
        ssize_t got = in->nodeid == DISK ? pread(image, content, r->size, r->offset) : 0;
        return answer(in, got < 0 ? -errno : 0, content, got < 0 ? 0 : got);
    }
    case FUSE_WRITE: {
        struct fuse_write_in *w = body;
        char *bytes = (char *)(w + 1);
        struct fuse_write_out out = {.size = w->size};
        if (in->nodeid == DISK)
            write_disk(w, bytes);
        else if (sscanf(bytes, "delay %u", &delay_ms) != 1)
            record('M', 0, w->size, bytes);
        return answer(in, 0, &out, sizeof out);
    }
    case FUSE_FSYNC:
        if (in->nodeid == DISK)
            record('F', 0, 0, "");
        return answer(in, 0, 0, 0);
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_ACCESS:
        return answer(in, 0, 0, 0);
    case FUSE_STATFS: {
        struct fuse_statfs_out out = {.st = {.bsize = 4096, .namelen = 255}};
        return answer(in, 0, &out, sizeof out);
    }
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_DESTROY:
        exit(0);
    default:
        answer(in, -ENOSYS, 0, 0);
    }
}

int main(int count, char **arguments) {
    if (count != 4)
        return 2;
    image = open(arguments[1], O_RDWR);
    journal = open(arguments[2], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    kernel = open("/dev/fuse", O_RDWR);
    if (image < 0 || journal < 0 || kernel < 0)
        return perror("logdisk: open"), 1;
    disk_size = lseek(image, 0, SEEK_END);
    char options[80];
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", kernel);
    if (mount("logdisk", arguments[3], "fuse", MS_NOSUID | MS_NODEV, options))
        return perror("logdisk: mount"), 1;
    for (;;) {
        ssize_t got = read(kernel, request, sizeof request);
        if (got < 0 && errno != EINTR && errno != ENOENT)
            return errno == ENODEV ? 0 : 1;
        if (got > 0) {
            struct fuse_in_header *in = (void *)request;
            request[got < LARGEST + 4095 ? got : LARGEST + 4095] = 0;
            serve(in, in + 1);
        }
    }
}
