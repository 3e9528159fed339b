/*
** The interposer: preloaded into a target, it records every operation that changes, or makes durable,
** something below one watched directory.
**
** METHOD
**
** Two layers of interception, one dispatcher.
**
**   1. The C library's entry points (write, openat, rename...) are replaced by wrappers. This layer
**      is cheap and needs no privilege, but it misses the C library's own calls (fwrite, mkstemp,
**      remove) and raw syscall().
**   2. A seccomp filter traps the same system calls wherever they come from, except from the stub, a
**      page of our code at a fixed address. The SIGSYS handler passes the trapped call to the same
**      dispatcher as the wrappers. The filter survives exec, and because the address is fixed it
**      still recognises the stub: every new program image maps the stub again, and installs the
**      handler, in a constructor that runs before all others (-z initfirst).
**
** The dispatcher uses the kernel's calling convention (call number, six arguments, negative errno),
** never touches errno and never allocates, so that it may run in a signal handler, in a forked child
** of a threaded process and in a vfork child.
**
** Each operation runs under one lock, shared by all threads and processes of the activation: check
** whether a fault is due, make the system call, write the record. Hence the order of the trace is
** the order of the operations. The lock is a word in shared memory that holds its owner's thread id.
** A child that is forked while another thread holds the lock waits for that thread, which is alive in
** the parent. Nothing needs to be reset after a fork.
**
** What each fault leaves behind:
**
**   kill before, after   the operations up to K, without or with K itself; the process group dies
**                        inside the call, under the lock, so that nothing is recorded after it
**   kill half-way        the first half of the bytes of write K
**   fail                 nothing: the call returns the errno, the system call is not made
**   short write          the first half of the bytes, and a truthful return value
**   fill                 a short write, then the errno: the disk becomes full in the middle of a write
**   lose                 fsync returns EIO, and the bytes written since the last sync revert to their
**                        previous content (zeros where there was none), as a reader finds them after
**                        Linux has dropped the pages it could not write. The size stays: it is kept
**                        in the inode, not in the pages.
**
** Counters and trace live in a MAP_SHARED file: SIGKILL does not lose them.
**
** WHAT IT RECORDS
**
** open with O_CREAT, O_TRUNC or O_TMPFILE, write, pwrite, writev, pwritev, pwritev2, truncate,
** ftruncate, fallocate, fsync, fdatasync, sync, syncfs, rename, link, symlink, unlink, rmdir, mkdir,
** mknod, copy_file_range, sendfile, splice, msync; all variants; by path or by descriptor, however the
** descriptor was obtained. Stores through a shared mapping are looked for before each operation and each
** acknowledgement, and recorded as writes; see "Mapped files". A file is identified by device and inode at each call, never by
** descriptor number: the C library closes descriptors internally, which the wrappers do not see.
** Only calls that succeed count as operations; reads are not intercepted.
**
** WHAT IT CANNOT RECORD
**
** Reported by a warning in the trace: a shared writable mapping of a large file, or by several processes that did
** not inherit it, msync of a part of what is not synced, io_uring and libaio,
** statically linked and 32-bit programs, 32-bit system calls (refused), extended attributes, FICLONE, fallocate's COLLAPSE and INSERT, special files,
** directories moved into or out of the watched directory, a missing seccomp filter, a full trace.
** Not reported, but found when the harness compares the trace with the files (OPTION_CHECK, and the last
** state): mprotect of a mapping that was made read-only, machine code in the first 4 GiB of a dynamic
** program, a process that this one did not start. Not reported: owner, mode and times; sockets bound
** below the directory. Files written to outside the directory are only named (KIND_ELSEWHERE). Fatal instead of silent (death by SIGSYS): a call
** that traps without a handler, that is in a static program above 4 GiB (static PIE), in a program
** started by a raw execve without our variables, in a thread that blocked SIGSYS before activation.
** Whether a call will succeed is only a guess before it is made: a fault planned for operation K may
** strike an rmdir, or a rename of directories, just before K that would have failed anyway.
*/
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE /* its inline wrappers would clash with the ones below */
#include <alloca.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/falloc.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code of a trap; asm-generic/siginfo.h clashes with signal.h */
#endif

#define EXPORT __attribute__((visibility("default")))
#define LENGTH(array) (sizeof(array) / sizeof(*(array)))

/* ---- The machine ------------------------------------------------------------------------------ */

/*
** `plain_syscall(number, a, b, c, d, e, f)` returns what the kernel returns. Its code is position
** independent: it is called in place until a filter is installed, and as a copy in the stub afterwards.
*/
extern long plain_syscall(long, long, long, long, long, long, long);
extern const char plain_syscall_end[];

#if defined(__x86_64__)
#define OUR_ARCH AUDIT_ARCH_X86_64
#define OUR_ELF_MACHINE EM_X86_64
#define X32_BIT 0x40000000u /* 32-bit pointers, in numbers of their own */
__asm__(".text\n.p2align 4\n.hidden plain_syscall\n.globl plain_syscall\n"
        ".type plain_syscall,@function\nplain_syscall:\n"
        "movq %rdi,%rax\nmovq %rsi,%rdi\nmovq %rdx,%rsi\nmovq %rcx,%rdx\n"
        "movq %r8,%r10\nmovq %r9,%r8\nmovq 8(%rsp),%r9\nsyscall\nret\n"
        ".hidden plain_syscall_end\n.globl plain_syscall_end\nplain_syscall_end:\n"
        /* On this machine a signal handler must provide its own return trampoline. */
        ".hidden signal_return\n.globl signal_return\n.type signal_return,@function\n"
        "signal_return:\nmovl $15,%eax\nsyscall\n");
extern void signal_return(void);
#define SIGNAL_RETURN signal_return
#define SIGNAL_RETURN_FLAG 0x04000000 /* SA_RESTORER */
#define CONTEXT_ARGUMENTS(g) \
    {(g)[REG_RDI], (g)[REG_RSI], (g)[REG_RDX], (g)[REG_R10], (g)[REG_R8], (g)[REG_R9]}
#define CONTEXT_REGISTERS(context) ((context)->uc_mcontext.gregs)
#define CONTEXT_RESULT(context) ((context)->uc_mcontext.gregs[REG_RAX])
#elif defined(__aarch64__) && defined(__AARCH64EL__)
#define OUR_ARCH AUDIT_ARCH_AARCH64
#define OUR_ELF_MACHINE EM_AARCH64
#define X32_BIT 0u
__asm__(".text\n.p2align 4\n.hidden plain_syscall\n.globl plain_syscall\n"
        ".type plain_syscall,%function\nplain_syscall:\n"
        "mov x8,x0\nmov x0,x1\nmov x1,x2\nmov x2,x3\nmov x3,x4\nmov x4,x5\nmov x5,x6\nsvc #0\nret\n"
        ".hidden plain_syscall_end\n.globl plain_syscall_end\nplain_syscall_end:\n");
#define SIGNAL_RETURN NULL
#define SIGNAL_RETURN_FLAG 0
#define CONTEXT_ARGUMENTS(r) {(r)[0], (r)[1], (r)[2], (r)[3], (r)[4], (r)[5]}
#define CONTEXT_REGISTERS(context) ((context)->uc_mcontext.regs)
#define CONTEXT_RESULT(context) ((context)->uc_mcontext.regs[0])
#else
#error "the interposer knows x86_64 and little-endian aarch64"
#endif

/*
** The address of the stub in every process. Below 2^39, the smallest user address space of aarch64;
** above the first 4 GiB, where programs with fixed addresses live; away from the default mappings of
** kernels, Go and Java.
*/
#define STUB_ADDRESS 0x3CA05C0000UL
#define STUB_SIZE 4096UL

static long (*system_call)(long, long, long, long, long, long, long) = plain_syscall;

struct call {
    long number;
    long a[6];
};

static long pass(const struct call *call) {
    const long *a = call->a;
    return system_call(call->number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

#define RAW(number, ...) raw_syscall_of((struct call){number, {__VA_ARGS__}})
static long raw_syscall_of(struct call call) { return pass(&call); }

/* ---- What is shared with the harness: control page, inode table, trace ------------------------ */

/* Mirrored in chaoskit/inside/layout.py: change both, and VERSION. */
#define MAGIC 0x314B53494454494BUL
#define VERSION 6
#define TABLE_OFFSET 4096UL
#define TABLE_SLOTS 16384u
#define TRACE_OFFSET (TABLE_OFFSET + TABLE_SLOTS * sizeof(struct slot))

enum { MODE_OFF, MODE_COUNT, MODE_RECORD };
enum { OPTION_SECCOMP = 1, OPTION_CHECK = 2 };
enum { FIRED_NOT, FIRED_YES, FIRED_NOT_APPLICABLE };

enum action {
    ACTION_NONE,
    ACTION_KILL_BEFORE,
    ACTION_KILL_AFTER,
    ACTION_KILL_HALF,
    ACTION_FAIL,
    ACTION_SHORT,
    ACTION_LOSE,
    ACTION_FILL,
};

enum kind {
    KIND_CREATE = 1,
    KIND_MKDIR,
    KIND_SYMLINK,
    KIND_LINK,
    KIND_RENAME,
    KIND_UNLINK,
    KIND_RMDIR,
    KIND_WRITE,
    KIND_TRUNCATE,
    KIND_ALLOCATE,
    KIND_PUNCH,
    KIND_FSYNC,
    KIND_FDATASYNC,
    KIND_SYNC,
    /* Not operations: they have no index. */
    KIND_WARNING = 32,
    KIND_BEFORE_IMAGE, /* the bytes that an operation is about to replace or to move; see keeps_images */
    KIND_SYNC_RANGE,   /* sync_file_range: guarantees no durability */
    KIND_ELSEWHERE,    /* a file outside the watched directory was written to */
    KIND_CLOSE,        /* some file systems start to write a file back when it is closed */
};

enum {
    FLAG_DURABLE = 1,   /* O_SYNC, O_DSYNC: on disk when it returned */
    FLAG_APPEND = 2,
    FLAG_TORN = 4,      /* only the first half was written, by a fault */
    FLAG_REVERTED = 8,  /* written by ACTION_LOSE: restores the old bytes */
    FLAG_KEEP_SIZE = 16,
    FLAG_MOVED_IN = 32, /* from outside the watched directory: data = its content, length = its mode */
    FLAG_MOVED_OUT = 64,
    FLAG_EXCHANGE = 128,
    FLAG_NAMELESS = 256, /* O_TMPFILE */
    FLAG_WHOLE = 512,    /* a before image of the whole file */
    FLAG_MAPPED = 1024,  /* stores through a mapping, found afterwards */
    FLAG_JOINED = 2048,  /* ... together with the ones before */
};

struct identity {
    uint64_t device, inode;
};

struct control {
    uint64_t magic;
    uint32_t version;
    uint32_t mode;
    uint32_t lock; /* 0, or the owner's thread id, with LOCK_WAITERS */
    uint32_t dead; /* a kill is under way: every later operation dies too */
    uint64_t position;
    uint64_t trace_end;
    uint64_t trace_size;
    uint32_t overflow;
    uint32_t warnings;
    uint32_t last_record; /* size of the last record, to walk the trace backwards */
    uint32_t generation;  /* slots of another generation are empty */
    uint32_t slots_used;
    uint32_t options;
    uint32_t group; /* process group to kill; 0 until the first activation */
    uint32_t action;
    uint64_t action_at;
    uint64_t action_count; /* how many more times; UINT64_MAX: no limit */
    uint64_t action_kinds; /* bit 1 << kind */
    uint32_t action_errno;
    uint32_t fired;
    uint64_t fired_index;
    uint32_t fired_pid;
    uint32_t fired_times;
    struct identity root;
    uint32_t trapped; /* calls that came through seccomp */
    uint32_t nested;  /* operations missed because a signal handler interrupted another */
    uint32_t stolen;  /* how often the lock was taken from a dead owner */
    uint32_t shared_mappings, msyncs;
    uint32_t then_kill;  /* ACTION_KILL_...: the life survives `action` and is killed later, or ACTION_NONE */
    uint64_t then_at;
    uint32_t then_fired; /* 1: yes */
    uint32_t reserved[19];
    char root_path[1024];
};
_Static_assert(offsetof(struct control, root_path) == 256, "control page layout");
_Static_assert(sizeof(struct control) <= TABLE_OFFSET, "control page size");

enum { STATE_UNKNOWN, STATE_FOREIGN, STATE_WATCHED, STATE_ORPHAN, STATE_MASK = 7, STATE_MAPPED = 8, STATE_NOTED = 16,
       STATE_SHADOWED = 32 };

struct slot {
    struct identity id;
    uint32_t generation;
    uint32_t state;
};

struct record {
    uint32_t size, previous;
    uint16_t kind, flags;
    uint32_t pid;
    uint64_t index;
    struct identity file, parent, parent2, replaced;
    int64_t offset;
    uint64_t length;
    uint32_t data_size;
    uint16_t name_size, name2_size;
    /* then: name, name2, data, padding to 8 */
};
_Static_assert(sizeof(struct record) == 112, "record layout");

static struct control *control; /* NULL: dormant */
static struct slot *slots;
static uint8_t *trace;
static size_t mapped_size;
static uint64_t populated; /* of the trace, in this process */
static char control_path[PATH_MAX];
static char library_path[PATH_MAX];

static int observing(void) {
    return control && __atomic_load_n(&control->mode, __ATOMIC_RELAXED) != MODE_OFF;
}

/* ---- The lock ---------------------------------------------------------------------------------- */

#define LOCK_WAITERS 0x80000000u
#define LOCK_OWNER 0x3FFFFFFFu

static uint32_t owner_pid;  /* of the lock's current owner, for the records */
static int doomed;          /* the current operation is the last one: 1 by `action`, 2 by `then_kill` */
static unsigned mapped_files;
static void note_stores(void);
struct operation;
static void refresh_shadow(const struct operation *op);

static __thread __attribute__((tls_model("initial-exec"))) struct {
    uint32_t tid, pid;
} self;

/*
** Set once `self` is valid in this process. It is in memory that the kernel clears in every forked
** child, which saves a system call per operation. A vfork child is mistaken for its parent, which is
** harmless because the parent sleeps meanwhile.
*/
static uint32_t *self_is_known;

static void prepare_self(void) {
    if (self_is_known)
        return;
    long page = RAW(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page < 0 && page > -4096)
        return;
    if (RAW(SYS_madvise, page, 4096, MADV_WIPEONFORK) == 0)
        self_is_known = (uint32_t *)page;
}

static uint32_t thread_id(void) {
    if (!self_is_known || !*self_is_known || !self.tid) {
        self.tid = (uint32_t)RAW(SYS_gettid);
        self.pid = (uint32_t)RAW(SYS_getpid);
        if (self_is_known)
            *self_is_known = 1;
    }
    return self.tid;
}

static char *put_number(char *end, unsigned long value) {
    do
        *--end = (char)('0' + value % 10);
    while (value /= 10);
    return end;
}

/* "<prefix><number><suffix>" without the C library's printf, which may allocate. */
static const char *numbered(char *buffer, size_t size, const char *prefix, unsigned long number,
                            const char *suffix) {
    char *at = buffer + size - strlen(suffix) - 1;
    strcpy(at, suffix);
    at = put_number(at, number) - strlen(prefix);
    memcpy(at, prefix, strlen(prefix));
    return at;
}

/* A zombie still answers kill(pid, 0), but will not release anything. */
static int thread_is_dead(uint32_t tid) {
    char path[48], text[128];
    long fd = RAW(SYS_openat, AT_FDCWD, (long)numbered(path, sizeof path, "/proc/", tid, "/stat"),
                  O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fd == -ENOENT;
    long size = RAW(SYS_read, fd, (long)text, sizeof text - 1);
    RAW(SYS_close, fd);
    text[size > 0 ? size : 0] = 0;
    const char *state = strrchr(text, ')');
    return state && (state[2] == 'Z' || state[2] == 'X');
}

static void kill_everything(void) {
    __atomic_store_n(&control->dead, 1, __ATOMIC_SEQ_CST);
    if (control->group)
        RAW(SYS_kill, -(long)control->group, SIGKILL);
    /* Also processes that left the group. */
    RAW(SYS_kill, RAW(SYS_getpid), SIGKILL);
    for (;;)
        RAW(SYS_ppoll, 0, 0, 0, 0, 0);
}

static void wait_for_lock(uint32_t seen) {
    struct timespec patience = {0, 50 * 1000 * 1000};
    if (!(seen & LOCK_WAITERS) &&
        !__atomic_compare_exchange_n(&control->lock, &seen, seen | LOCK_WAITERS, 0,
                                     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        return;
    long result = RAW(SYS_futex, (long)&control->lock, FUTEX_WAIT, (long)(seen | LOCK_WAITERS),
                      (long)&patience, 0, 0);
    seen |= LOCK_WAITERS;
    if (result == -ETIMEDOUT && thread_is_dead(seen & LOCK_OWNER) &&
        __atomic_compare_exchange_n(&control->lock, &seen, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        control->stolen++;
}

/*
** False if this thread already holds the lock: a signal handler interrupted an operation and makes
** one itself. Waiting would deadlock; the operation is made and counted as missed.
*/
static int enter(void) {
    uint32_t tid = thread_id(), mark = 0;
    for (;;) {
        uint32_t seen = 0;
        if (__atomic_compare_exchange_n(&control->lock, &seen, tid | mark, 0, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            break;
        if ((seen & LOCK_OWNER) == tid) {
            __atomic_add_fetch(&control->nested, 1, __ATOMIC_RELAXED);
            return 0;
        }
        wait_for_lock(seen);
        mark = LOCK_WAITERS; /* others may be waiting: the release must wake one */
    }
    if (__atomic_load_n(&control->dead, __ATOMIC_RELAXED))
        kill_everything();
    owner_pid = self.pid;
    doomed = 0;
    if (mapped_files)
        note_stores();
    return 1;
}

static void leave(void) {
    uint32_t was = __atomic_exchange_n(&control->lock, 0, __ATOMIC_RELEASE);
    if (was & LOCK_WAITERS)
        RAW(SYS_futex, (long)&control->lock, FUTEX_WAKE, 1, 0, 0, 0);
}

static long leave_with(long result) {
    leave();
    return result;
}

/* ---- The trace (all of it under the lock) ------------------------------------------------------ */

struct operation {
    struct record head;
    const char *name, *name2;
    const struct iovec *pieces; /* head.data_size bytes, taken from these in order */
};

#define POPULATE_STEP (512UL * 1024)

/*
** Makes room for `size` bytes after the end. Pages are faulted in by half megabytes: page faults would
** be the largest single cost of recording. A full /dev/shm is detected here, instead of as SIGBUS.
*/
static int reserve(uint64_t size) {
    uint64_t end = control->trace_end + size;
    if (end > control->trace_size) {
        control->overflow = 1;
        return 0;
    }
    if (end > populated) {
        uint64_t from = control->trace_end & ~4095UL;
        uint64_t until = (end + POPULATE_STEP - 1) & ~(POPULATE_STEP - 1);
        if (until > control->trace_size)
            until = control->trace_size;
        long result = RAW(SYS_madvise, (long)(trace + from), (long)(until - from),
                          23 /* MADV_POPULATE_WRITE, Linux 5.14; older: fault page by page */);
        if (result < 0 && result != -EINVAL) {
            control->overflow = 1;
            return 0;
        }
        populated = until;
    }
    return 1;
}

/* Where the data of the next record goes: file content is read directly into it. */
static uint8_t *data_room(const struct operation *op, uint64_t size) {
    uint64_t before = sizeof(struct record) + op->head.name_size + op->head.name2_size;
    return reserve(before + size + 8) ? trace + control->trace_end + before : NULL;
}

static void gather(uint8_t *to, const struct iovec *pieces, size_t size) {
    for (; size; pieces++) {
        size_t part = pieces->iov_len < size ? pieces->iov_len : size;
        memmove(to, pieces->iov_base, part);
        to += part;
        size -= part;
    }
}

static void append(struct operation *op) {
    struct record *head = &op->head;
    uint64_t names = (uint64_t)head->name_size + head->name2_size;
    uint64_t size = (sizeof *head + names + head->data_size + 7) & ~7UL;
    if (control->overflow || !reserve(size))
        return;
    uint8_t *at = trace + control->trace_end;
    gather(at + sizeof *head + names, op->pieces, head->data_size);
    memcpy(at + sizeof *head, op->name, head->name_size);
    memcpy(at + sizeof *head + head->name_size, op->name2, head->name2_size);
    head->size = (uint32_t)size;
    head->previous = control->last_record;
    head->pid = owner_pid;
    memcpy(at, head, sizeof *head);
    control->last_record = (uint32_t)size;
    __atomic_store_n(&control->trace_end, control->trace_end + size, __ATOMIC_RELEASE);
}

static void warn_locked(const char *what, const char *subject) {
    struct iovec pieces[] = {{(void *)what, strlen(what)}};
    struct operation op = {.head = {.kind = KIND_WARNING, .index = control->position},
                           .name = subject, .name2 = "", .pieces = pieces};
    op.head.name_size = (uint16_t)strnlen(subject, PATH_MAX);
    op.head.data_size = (uint32_t)pieces[0].iov_len;
    control->warnings++;
    append(&op);
}

static void warn(const char *what, const char *subject) {
    if (!observing() || !enter())
        return;
    warn_locked(what, subject);
    leave();
}

/* ---- Faults ------------------------------------------------------------------------------------ */

enum verdict { PROCEED, REFUSE, HALVE, LOSE };

static void note_fired(uint32_t how) {
    if (control->fired != FIRED_YES) {
        control->fired = how;
        control->fired_index = control->position;
        control->fired_pid = owner_pid;
    }
    if (how == FIRED_YES)
        control->fired_times++;
    if (control->action_count != UINT64_MAX)
        control->action_count--;
}

static int applicable(unsigned kind, size_t divisible) {
    switch (control->action) {
    case ACTION_KILL_HALF:
    case ACTION_SHORT:
        return divisible >= 2;
    case ACTION_FILL:
        return divisible >= 2 || control->fired_times > 0;
    case ACTION_LOSE:
        return kind == KIND_FSYNC || kind == KIND_FDATASYNC;
    default:
        return 1;
    }
}

static int is_due(unsigned kind) {
    return control->action != ACTION_NONE && control->position >= control->action_at &&
           control->action_count != 0 && control->action_kinds >> kind & 1;
}

/*
** The fault, if any, for the operation that is about to get the index `position`. Callers have checked,
** as far as possible without making the call, that it would succeed: a call that fails by itself is not
** an operation and must not use up a fault.
*/
static enum verdict decide_first(unsigned kind, size_t divisible) {
    if (!is_due(kind))
        return PROCEED;
    if (!applicable(kind, divisible)) {
        note_fired(FIRED_NOT_APPLICABLE);
        return PROCEED;
    }
    switch (control->action) {
    case ACTION_KILL_BEFORE:
        note_fired(FIRED_YES);
        kill_everything();
        break;
    case ACTION_KILL_AFTER:
        doomed = 1;
        return PROCEED;
    case ACTION_KILL_HALF:
        doomed = 1;
        return HALVE;
    case ACTION_SHORT:
        note_fired(FIRED_YES);
        return HALVE;
    case ACTION_FILL:
        note_fired(FIRED_YES);
        return control->fired_times == 1 ? HALVE : REFUSE;
    case ACTION_LOSE:
        note_fired(FIRED_YES);
        return LOSE;
    }
    note_fired(FIRED_YES);
    return REFUSE;
}

/* Only once the first fault has fired, and only at the operation that really gets the index `then_at`. */
static enum verdict decide_then(size_t divisible) {
    if (control->then_kill == ACTION_NONE || control->fired != FIRED_YES ||
        control->position != control->then_at)
        return PROCEED;
    switch (control->then_kill) {
    case ACTION_KILL_BEFORE:
        control->then_fired = 1;
        kill_everything();
        break;
    case ACTION_KILL_AFTER:
        doomed = 2;
        break;
    case ACTION_KILL_HALF:
        if (divisible < 2)
            break;
        doomed = 2;
        return HALVE;
    }
    return PROCEED;
}

static enum verdict decide(unsigned kind, size_t divisible) {
    enum verdict first = decide_first(kind, divisible);
    if (first == REFUSE || first == LOSE || doomed)
        return first;
    enum verdict then = decide_then(divisible);
    return first == HALVE ? HALVE : then;
}

static void commit(struct operation *op) {
    op->head.index = control->position;
    if (control->shared_mappings && !(op->head.flags & FLAG_MAPPED))
        refresh_shadow(op);
    if (control->mode == MODE_RECORD)
        append(op);
    if (doomed == 1)
        note_fired(FIRED_YES);
    else if (doomed)
        control->then_fired = 1;
    __atomic_store_n(&control->position, control->position + 1, __ATOMIC_RELEASE);
    if (doomed)
        kill_everything();
}

/* An operation that either happens as a whole or not at all. */
static long attempt(const struct call *call, struct operation *op) {
    if (decide(op->head.kind, 0) == REFUSE)
        return -(long)control->action_errno;
    return pass(call);
}

/* ---- Which files are watched ------------------------------------------------------------------- */

static struct identity identity_of(const struct stat *st) {
    return (struct identity){st->st_dev, st->st_ino};
}

static int same(struct identity a, struct identity b) {
    return a.inode == b.inode && a.device == b.device;
}

/*
** The slot of an inode, or the empty slot for it. Safe without the lock: an insertion sets the
** generation last, and a slot is never reused for another inode within one generation.
*/
static struct slot *find_slot(struct identity id) {
    uint32_t at = (uint32_t)((id.inode ^ id.device << 7) * 0x9E3779B97F4A7C15UL >> 40);
    for (;; at++) {
        struct slot *slot = &slots[at % TABLE_SLOTS];
        if (__atomic_load_n(&slot->generation, __ATOMIC_ACQUIRE) != control->generation ||
            same(slot->id, id))
            return slot;
    }
}

static uint32_t known_state(struct identity id) {
    struct slot *slot = find_slot(id);
    if (slot->generation != control->generation)
        return STATE_UNKNOWN;
    return __atomic_load_n(&slot->state, __ATOMIC_RELAXED);
}

static void forget_all_states(void) {
    control->slots_used = 0;
    __atomic_add_fetch(&control->generation, 1, __ATOMIC_RELEASE);
}

static void set_state(struct identity id, uint32_t state) {
    struct slot *slot = find_slot(id);
    if (slot->generation != control->generation) {
        if (control->slots_used >= TABLE_SLOTS / 4 * 3) {
            forget_all_states();
            slot = find_slot(id);
        }
        control->slots_used++;
        slot->id = id;
    }
    slot->state = state;
    __atomic_store_n(&slot->generation, control->generation, __ATOMIC_RELEASE);
}

static int path_is_inside(const char *path) {
    size_t size = strlen(control->root_path);
    return strncmp(path, control->root_path, size) == 0 && (path[size] == '/' || path[size] == 0);
}

#define FD_PATH_SIZE 40
static const char *path_of_fd(char *buffer, int fd) {
    return numbered(buffer, FD_PATH_SIZE, "/proc/self/fd/", (unsigned)fd, "");
}

/* The kernel's path of a file, symbolic links resolved. Under the lock: the buffer is shared. */
static const char *real_path(int fd) {
    static char path[PATH_MAX + 16];
    char link[FD_PATH_SIZE];
    long size = RAW(SYS_readlinkat, AT_FDCWD, (long)path_of_fd(link, fd), (long)path,
                    sizeof path - 1);
    path[size > 0 ? size : 0] = 0;
    return path;
}

/* An inode without a name may be freed and reused for another file, so it is looked up each time. */
static uint32_t examine(int fd, const struct stat *st) {
    uint32_t state = STATE_FOREIGN;
    if (path_is_inside(real_path(fd)))
        state = st->st_nlink ? STATE_WATCHED : STATE_ORPHAN;
    set_state(identity_of(st), state);
    return state;
}

static int settled(uint32_t state) { return state == STATE_FOREIGN || state == STATE_WATCHED; }

static int watched_fd(int fd, struct stat *st) {
    if (RAW(SYS_fstat, fd, (long)st) < 0)
        st->st_mode = 0;
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode))
        return 0;
    uint32_t state = known_state(identity_of(st)) & STATE_MASK;
    if (!settled(state)) {
        if (!enter())
            return 0;
        state = examine(fd, st);
        leave();
    }
    return state != STATE_FOREIGN;
}

/* The same for a path, under the lock; a symbolic link at its end is followed. */
static int watched_path(int directory, const char *path, const struct stat *st) {
    uint32_t state = known_state(identity_of(st)) & STATE_MASK;
    if (!settled(state)) {
        long fd = RAW(SYS_openat, directory, (long)path, O_PATH | O_CLOEXEC);
        if (fd < 0)
            return 0;
        state = examine((int)fd, st);
        RAW(SYS_close, fd);
    }
    return state != STATE_FOREIGN;
}

static int stat_at(int directory, const char *path, struct stat *st, int flags) {
    return RAW(SYS_newfstatat, directory, (long)path, (long)st, flags) == 0;
}

/* A directory entry: which directory, which name. */
struct place {
    struct identity parent;
    const char *name;
    uint16_t name_size;
    int watched;
};

static int locate(int directory, const char *path, struct place *place) {
    static char parent[PATH_MAX];
    size_t end = strlen(path), start;
    struct stat st;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start > 0 && path[start - 1] != '/';)
        start--;
    *place = (struct place){.name = path + start, .name_size = (uint16_t)(end - start)};
    if (start >= sizeof parent || end - start > NAME_MAX)
        return 0;
    memcpy(parent, path, start);
    strcpy(parent + start, start ? "" : ".");
    if (!stat_at(directory, parent, &st, 0) || !S_ISDIR(st.st_mode))
        return 0;
    place->parent = identity_of(&st);
    place->watched = watched_path(directory, parent, &st);
    return place->watched;
}

static void name_operation(struct operation *op, const struct place *place) {
    op->head.parent = place->parent;
    op->head.name_size = place->name_size;
    op->name = place->name;
}

#define OPERATION(k) {.head = {.kind = (k)}, .name = "", .name2 = ""}

/* ---- Writing ----------------------------------------------------------------------------------- */

#define AT_POSITION (-1) /* offset: the descriptor's current position */
#define MANY_BYTES 0x7FFFF000UL /* the kernel never transfers more in one call */

static uint16_t flags_of_fd(int fd, int *writable) {
    long flags = RAW(SYS_fcntl, fd, F_GETFL, 0);
    *writable = (flags & O_ACCMODE) != O_RDONLY;
    return (uint16_t)((flags & O_DSYNC ? FLAG_DURABLE : 0) | (flags & O_APPEND ? FLAG_APPEND : 0));
}

static long reopen(int fd, int flags) {
    char path[FD_PATH_SIZE];
    return RAW(SYS_openat, AT_FDCWD, (long)path_of_fd(path, fd), flags | O_CLOEXEC);
}

/* The descriptor itself may be write-only. Bytes beyond the end read as zeros. */
static void read_range(int fd, uint8_t *to, int64_t offset, uint64_t size) {
    memset(to, 0, size);
    long reader = reopen(fd, O_RDONLY);
    for (long got; reader >= 0 && size; size -= (uint64_t)got, to += got, offset += got)
        if ((got = RAW(SYS_pread64, reader, (long)to, (long)size, offset)) <= 0)
            break;
    if (reader >= 0)
        RAW(SYS_close, reader);
}

/*
** Before images serve two ends. ACTION_LOSE restores them. OPTION_CHECK lets the harness compare what an
** operation finds with what the trace knows: bytes that changed without a record would otherwise be gone
** once they are overwritten, truncated or unlinked. The last state of the directory is compared anyway.
*/
static int keeps_images(void) {
    return control->action == ACTION_LOSE || control->options & OPTION_CHECK;
}

static void keep_before_image(int fd, struct identity id, int64_t offset, uint64_t size,
                              uint16_t flags) {
    struct operation image = OPERATION(KIND_BEFORE_IMAGE);
    uint8_t *room = data_room(&image, size);
    if (!room || !size)
        return;
    read_range(fd, room, offset, size);
    struct iovec piece = {room, size};
    image.head.index = control->position;
    image.head.flags = flags;
    image.head.file = id;
    image.head.offset = offset;
    image.head.length = image.head.data_size = (uint32_t)size;
    image.pieces = &piece;
    append(&image);
}

/* Everything from `offset` to the end of an open file. */
static void keep_rest(int fd, int64_t offset) {
    struct stat st;
    if (control->options & OPTION_CHECK && RAW(SYS_fstat, fd, (long)&st) == 0 && S_ISREG(st.st_mode) &&
        st.st_size > offset)
        keep_before_image(fd, identity_of(&st), offset, (uint64_t)(st.st_size - offset),
                          offset ? 0 : FLAG_WHOLE);
}

static void keep_rest_at(int directory, const char *path, const struct stat *st, int64_t offset) {
    if (!(control->options & OPTION_CHECK) || !S_ISREG(st->st_mode))
        return;
    long fd = RAW(SYS_openat, directory, (long)path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    keep_rest((int)fd, offset);
    RAW(SYS_close, fd);
}

static int64_t offset_of_next_write(int fd, int64_t offset, int appends) {
    struct stat st;
    if (appends && RAW(SYS_fstat, fd, (long)&st) == 0)
        return st.st_size;
    return offset == AT_POSITION ? RAW(SYS_lseek, fd, 0, SEEK_CUR) : offset;
}

/* The bytes of the file that a write will replace; an append replaces none. */
static void keep_overwritten(int fd, struct identity id, int64_t offset, uint64_t size) {
    struct stat st;
    if (!(control->options & OPTION_CHECK) || RAW(SYS_fstat, fd, (long)&st) < 0 || st.st_size <= offset)
        return;
    uint64_t there = (uint64_t)(st.st_size - offset);
    keep_before_image(fd, id, offset, size < there ? size : there, 0);
}

struct writing {
    int fd;
    const struct iovec *pieces;
    long piece_count;
    int64_t offset;
    int rwf; /* flags of pwritev2 */
};

static size_t size_of_writing(const struct writing *w) {
    size_t size = 0;
    if (w->piece_count < 0 || w->piece_count > IOV_MAX)
        return 0;
    for (long i = 0; i < w->piece_count; i++)
        size += w->pieces[i].iov_len;
    return size < MANY_BYTES ? size : MANY_BYTES;
}

/* The first half as one plain write, from a copy: the caller's vector must not be modified. */
static long write_half(const struct writing *w, struct operation *op, size_t size) {
    uint8_t *half = data_room(op, size / 2);
    if (!half)
        return -ENOSPC;
    gather(half, w->pieces, size / 2);
    op->head.flags |= FLAG_TORN;
    if (w->offset == AT_POSITION)
        return RAW(SYS_write, w->fd, (long)half, (long)(size / 2));
    return RAW(SYS_pwrite64, w->fd, (long)half, (long)(size / 2), w->offset);
}

static long write_locked(const struct call *call, const struct writing *w, const struct stat *st,
                         size_t size) {
    struct operation op = OPERATION(KIND_WRITE);
    int writable;
    op.head.flags = flags_of_fd(w->fd, &writable);
    if (!writable)
        return pass(call);
    if (w->rwf & RWF_APPEND)
        op.head.flags |= FLAG_APPEND;
    if (w->rwf & (RWF_DSYNC | RWF_SYNC))
        op.head.flags |= FLAG_DURABLE;
    op.head.file = identity_of(st);
    op.pieces = w->pieces;
    /* The kernel ignores the offset of pwrite on an O_APPEND descriptor; so do we. */
    int appends = op.head.flags & FLAG_APPEND;
    if (w->offset != AT_POSITION || keeps_images())
        op.head.offset = offset_of_next_write(w->fd, w->offset, appends);
    if (control->action == ACTION_LOSE && !(op.head.flags & FLAG_DURABLE))
        keep_before_image(w->fd, op.head.file, op.head.offset, size, 0);
    keep_overwritten(w->fd, op.head.file, op.head.offset, size);

    enum verdict verdict = decide(KIND_WRITE, size);
    if (verdict == REFUSE)
        return -(long)control->action_errno;
    long result = verdict == HALVE ? write_half(w, &op, size) : pass(call);
    if (result <= 0)
        return result;
    if (w->offset == AT_POSITION)
        op.head.offset = RAW(SYS_lseek, w->fd, 0, SEEK_CUR) - result;
    op.head.length = op.head.data_size = (uint32_t)result;
    commit(&op);
    return result;
}

/* Once per file: where a target writes that leaves its directory alone. */
static void note_elsewhere(int fd, const struct stat *st) {
    struct operation note = OPERATION(KIND_ELSEWHERE);
    if (!S_ISREG(st->st_mode) || control->mode != MODE_RECORD ||
        known_state(identity_of(st)) & STATE_NOTED || !enter())
        return;
    set_state(identity_of(st), STATE_FOREIGN | STATE_NOTED);
    note.head.index = control->position;
    note.head.file = identity_of(st);
    note.name = real_path(fd);
    note.head.name_size = (uint16_t)strnlen(note.name, PATH_MAX);
    append(&note);
    leave();
}

static long do_write(const struct call *call, const struct writing *w) {
    struct stat st;
    size_t size;
    if (!watched_fd(w->fd, &st)) {
        note_elsewhere(w->fd, &st);
        return pass(call);
    }
    if (!(size = size_of_writing(w)) || !enter())
        return pass(call);
    return leave_with(write_locked(call, w, &st, size));
}

static long do_single_write(const struct call *call, int64_t offset) {
    struct iovec piece = {(void *)call->a[1], (size_t)call->a[2]};
    struct writing w = {(int)call->a[0], &piece, 1, offset, 0};
    return do_write(call, &w);
}

static long do_vector_write(const struct call *call, int64_t offset, int rwf) {
    struct writing w = {(int)call->a[0], (const struct iovec *)call->a[1], call->a[2], offset, rwf};
    return do_write(call, &w);
}

/* ---- Copying inside the kernel ----------------------------------------------------------------- */

struct copying {
    int from, to;
    int64_t *from_offset, *to_offset; /* NULL: the descriptor's own */
    size_t size;
    int size_argument; /* which argument of the call is the size */
};

/* How much there is to copy: the caller's size is often far larger than the file. */
static size_t bytes_available(const struct copying *c) {
    struct stat st;
    int waiting = 0;
    if (RAW(SYS_fstat, c->from, (long)&st) < 0)
        return 0;
    if (!S_ISREG(st.st_mode)) {
        RAW(SYS_ioctl, c->from, FIONREAD, (long)&waiting);
        return (size_t)waiting;
    }
    int64_t at = c->from_offset ? *c->from_offset : RAW(SYS_lseek, c->from, 0, SEEK_CUR);
    return st.st_size > at ? (size_t)(st.st_size - at) : 0;
}

static long copy_locked(const struct call *call, const struct copying *c, const struct stat *st) {
    struct operation op = OPERATION(KIND_WRITE);
    struct call changed = *call;
    size_t size = bytes_available(c);
    int writable;
    if (size > c->size)
        size = c->size;
    op.head.flags = flags_of_fd(c->to, &writable);
    if (!size || !writable)
        return pass(call);
    op.head.file = identity_of(st);
    op.head.offset = c->to_offset ? *c->to_offset : RAW(SYS_lseek, c->to, 0, SEEK_CUR);
    if (control->action == ACTION_LOSE)
        keep_before_image(c->to, op.head.file, op.head.offset, size, 0);
    keep_overwritten(c->to, op.head.file, op.head.offset, size);

    enum verdict verdict = decide(KIND_WRITE, size);
    if (verdict == REFUSE)
        return -(long)control->action_errno;
    if (verdict == HALVE) {
        changed.a[c->size_argument] = (long)(size / 2);
        op.head.flags |= FLAG_TORN;
    }
    long result = pass(&changed);
    if (result <= 0)
        return result;
    struct iovec piece = {data_room(&op, (uint64_t)result), (size_t)result};
    if (piece.iov_base && control->mode == MODE_RECORD)
        read_range(c->to, piece.iov_base, op.head.offset, (uint64_t)result);
    op.head.length = op.head.data_size = (uint32_t)result;
    op.pieces = &piece;
    commit(&op);
    return result;
}

static long do_copy(const struct call *call, const struct copying *c) {
    struct stat st;
    if (!watched_fd(c->to, &st)) {
        note_elsewhere(c->to, &st);
        return pass(call);
    }
    /* A pipe's data may come from a process that needs the lock: wait for it without the lock. */
    struct pollfd source = {c->from, POLLIN, 0};
    if (call->number == SYS_splice && !(call->a[5] & SPLICE_F_NONBLOCK))
        RAW(SYS_ppoll, (long)&source, 1, 0, 0, 0);
    if (!enter())
        return pass(call);
    return leave_with(copy_locked(call, c, &st));
}

static long do_sendfile(const struct call *call) {
    const long *a = call->a;
    struct copying c = {(int)a[1], (int)a[0], (int64_t *)a[2], NULL, (size_t)a[3], 3};
    return do_copy(call, &c);
}

static long do_ranged_copy(const struct call *call) {
    const long *a = call->a;
    struct copying c = {(int)a[0], (int)a[2], (int64_t *)a[1], (int64_t *)a[3], (size_t)a[4], 4};
    return do_copy(call, &c);
}

/* ---- Size, space ------------------------------------------------------------------------------- */

static long truncate_locked(const struct call *call, const struct stat *st) {
    struct operation op = OPERATION(KIND_TRUNCATE);
    op.head.file = identity_of(st);
    op.head.length = (uint64_t)call->a[1];
    long result = attempt(call, &op);
    if (result == 0)
        commit(&op);
    return result;
}

static long do_ftruncate(const struct call *call) {
    struct stat st;
    int fd = (int)call->a[0], writable;
    if (!watched_fd(fd, &st) || !S_ISREG(st.st_mode) || (flags_of_fd(fd, &writable), !writable) ||
        !enter())
        return pass(call);
    keep_rest(fd, call->a[1]);
    return leave_with(truncate_locked(call, &st));
}

static long do_truncate(const struct call *call) {
    const char *path = (const char *)call->a[0];
    struct stat st;
    if (!enter())
        return pass(call);
    if (!stat_at(AT_FDCWD, path, &st, 0) || !S_ISREG(st.st_mode) ||
        !watched_path(AT_FDCWD, path, &st))
        return leave_with(pass(call));
    keep_rest_at(AT_FDCWD, path, &st, call->a[1]);
    return leave_with(truncate_locked(call, &st));
}

/* Zeros beyond the end also grow the file: only a write of zeros records both. */
static void describe_zero_range(struct operation *op, const struct stat *st, struct iovec *piece) {
    uint64_t end = (uint64_t)op->head.offset + op->head.length;
    op->head.kind = KIND_PUNCH;
    if (op->head.flags & FLAG_KEEP_SIZE || end <= (uint64_t)st->st_size)
        return;
    piece->iov_base = data_room(op, op->head.length);
    piece->iov_len = op->head.length;
    if (piece->iov_base)
        memset(piece->iov_base, 0, piece->iov_len);
    op->head.kind = KIND_WRITE;
    op->head.data_size = (uint32_t)op->head.length;
    op->pieces = piece;
}

static long fallocate_locked(const struct call *call, struct stat *st) {
    struct operation op = OPERATION(KIND_ALLOCATE);
    int fd = (int)call->a[0], mode = (int)call->a[1];
    struct iovec zeros;
    RAW(SYS_fstat, fd, (long)st);
    op.head.file = identity_of(st);
    op.head.offset = call->a[2];
    op.head.length = (uint64_t)call->a[3];
    op.head.flags = mode & FALLOC_FL_KEEP_SIZE ? FLAG_KEEP_SIZE : 0;
    if (mode & FALLOC_FL_PUNCH_HOLE)
        op.head.kind = KIND_PUNCH;
    else if (mode & FALLOC_FL_ZERO_RANGE)
        describe_zero_range(&op, st, &zeros);
    else if (mode & ~FALLOC_FL_KEEP_SIZE) {
        warn_locked("fallocate moved bytes inside a file; the trace does not have it: ",
                    real_path(fd));
        return pass(call);
    }
    if (op.head.kind != KIND_ALLOCATE)
        keep_overwritten(fd, op.head.file, op.head.offset, op.head.length);
    long result = attempt(call, &op);
    if (result == 0)
        commit(&op);
    return result;
}

static long do_fallocate(const struct call *call) {
    struct stat st;
    int writable;
    if (!watched_fd((int)call->a[0], &st) || (flags_of_fd((int)call->a[0], &writable), !writable) ||
        !enter())
        return pass(call);
    return leave_with(fallocate_locked(call, &st));
}

/* ---- Syncing ----------------------------------------------------------------------------------- */

static void revert_one(long fd, const struct record *image) {
    struct stat st;
    RAW(SYS_fstat, fd, (long)&st);
    if (image->offset >= st.st_size)
        return;
    uint64_t room = (uint64_t)(st.st_size - image->offset);
    struct operation op = OPERATION(KIND_WRITE);
    struct iovec piece = {(void *)(image + 1), image->length < room ? image->length : room};
    op.pieces = &piece;
    op.head.file = image->file;
    op.head.offset = image->offset;
    op.head.length = op.head.data_size = (uint32_t)piece.iov_len;
    /* On the disk nothing changed: the old bytes are durable. */
    op.head.flags = FLAG_REVERTED | FLAG_DURABLE;
    RAW(SYS_pwrite64, fd, (long)piece.iov_base, (long)piece.iov_len, image->offset);
    commit(&op);
}

static int ends_unsynced(const struct record *r, struct identity file) {
    if (r->kind == KIND_SYNC)
        return 1;
    return same(r->file, file) && (r->kind == KIND_FSYNC || r->kind == KIND_FDATASYNC ||
                                   (r->kind == KIND_WRITE && r->flags & FLAG_REVERTED));
}

/* Backwards, so that for overlapping writes the oldest bytes are restored last. */
static void revert_unsynced(int fd, struct identity file) {
    long writer = reopen(fd, O_WRONLY);
    uint64_t at = control->trace_end;
    uint32_t size = control->last_record;
    while (writer >= 0 && size && at >= size) {
        const struct record *r = (const struct record *)(trace + (at -= size));
        if (ends_unsynced(r, file))
            break;
        size = r->previous;
        if (r->kind == KIND_BEFORE_IMAGE && same(r->file, file))
            revert_one(writer, r);
    }
    if (writer >= 0)
        RAW(SYS_close, writer);
}

static int holds_stores(struct identity file);

static long commit_if_done(long result, struct operation *op) {
    if (result == 0)
        commit(op);
    return result;
}

static long sync_locked(const struct call *call, unsigned kind, struct identity file) {
    struct operation op = OPERATION(kind);
    op.head.file = file;
    if (control->action == ACTION_LOSE && is_due(kind) && mapped_files && holds_stores(file)) {
        note_fired(FIRED_NOT_APPLICABLE);
        return commit_if_done(pass(call), &op);
    }
    switch (decide(kind, 0)) {
    case REFUSE:
        return -(long)control->action_errno;
    case LOSE:
        revert_unsynced((int)call->a[0], file);
        return -EIO;
    default:
        break;
    }
    return commit_if_done(pass(call), &op);
}

static long do_fsync(const struct call *call, unsigned kind) {
    struct stat st;
    if (!watched_fd((int)call->a[0], &st) || !enter())
        return pass(call);
    return leave_with(sync_locked(call, kind, identity_of(&st)));
}

static long do_sync(const struct call *call) {
    if (!enter())
        return pass(call);
    return leave_with(sync_locked(call, KIND_SYNC, control->root));
}

static long do_syncfs(const struct call *call) {
    struct stat st;
    if (RAW(SYS_fstat, call->a[0], (long)&st) < 0 || st.st_dev != control->root.device)
        return pass(call);
    return do_sync(call);
}

static long do_sync_file_range(const struct call *call) {
    struct operation op = OPERATION(KIND_SYNC_RANGE);
    struct stat st;
    if (!watched_fd((int)call->a[0], &st) || !enter())
        return pass(call);
    op.head.file = identity_of(&st);
    op.head.index = control->position;
    op.head.offset = call->a[1];
    op.head.length = (uint64_t)call->a[2];
    if (control->mode == MODE_RECORD)
        append(&op);
    return leave_with(pass(call));
}

/*
** A note before the descriptor is closed. Wrappers only: the dynamic linker closes files before a handler
** exists, so the call cannot be trapped. Not noted: a descriptor that dup2, close_range or the end of the
** process closes.
*/
static void note_close(int fd) {
    struct operation note = OPERATION(KIND_CLOSE);
    struct stat st;
    if (!observing() || control->mode != MODE_RECORD || !watched_fd(fd, &st) || !S_ISREG(st.st_mode) ||
        !enter())
        return;
    note.head.index = control->position;
    note.head.file = identity_of(&st);
    append(&note);
    leave();
}

/* ---- Opening ----------------------------------------------------------------------------------- */

#define TMPFILE_BIT (O_TMPFILE & ~O_DIRECTORY)
#define CHANGING_OPEN (O_CREAT | O_TRUNC | TMPFILE_BIT)

struct opening {
    int directory;
    const char *path;
    uint64_t flags;
};

static long open_existing(const struct call *call, const struct opening *o, const struct stat *st) {
    struct operation op = OPERATION(KIND_TRUNCATE);
    int refused = (o->flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);
    if (refused || !(o->flags & O_TRUNC) || st->st_size == 0 ||
        !watched_path(o->directory, o->path, st))
        return pass(call);
    op.head.file = identity_of(st);
    keep_rest_at(o->directory, o->path, st, 0);
    long fd = attempt(call, &op);
    if (fd >= 0)
        commit(&op);
    return fd;
}

/* Under the lock. Also for O_TMPFILE, where `place` is only the directory. */
static long open_new(const struct call *call, const struct place *place, uint16_t flags,
                     int through_link) {
    struct operation op = OPERATION(KIND_CREATE);
    struct place real;
    struct stat st;
    long fd = attempt(call, &op);
    if (fd < 0)
        return fd;
    RAW(SYS_fstat, fd, (long)&st);
    if (through_link) { /* a dangling symbolic link: the file is where the link points */
        if (!locate(AT_FDCWD, real_path((int)fd), &real))
            return fd;
        place = &real;
    }
    set_state(identity_of(&st), flags & FLAG_NAMELESS ? STATE_ORPHAN : STATE_WATCHED);
    name_operation(&op, place);
    op.head.file = identity_of(&st);
    op.head.flags = flags;
    commit(&op);
    return fd;
}

static long open_locked(const struct call *call, const struct opening *o) {
    struct stat st;
    struct place place;
    int follow = o->flags & O_NOFOLLOW ? AT_SYMLINK_NOFOLLOW : 0;
    int exists = stat_at(o->directory, o->path, &st, follow);
    if (o->flags & TMPFILE_BIT) {
        place = (struct place){.parent = identity_of(&st), .name = ""};
        if (!exists || !S_ISDIR(st.st_mode) || !watched_path(o->directory, o->path, &st))
            return pass(call);
        return open_new(call, &place, FLAG_NAMELESS, 0);
    }
    if (exists)
        return open_existing(call, o, &st);
    int through_link = stat_at(o->directory, o->path, &st, AT_SYMLINK_NOFOLLOW);
    if (!(o->flags & O_CREAT) || !locate(o->directory, o->path, &place))
        return pass(call);
    return open_new(call, &place, 0, through_link);
}

static long do_open(const struct call *call, const struct opening *o) {
    struct stat st;
    if (!(o->flags & CHANGING_OPEN))
        return pass(call);
    /* Opening a FIFO may block until another process, which may need the lock, opens it too. */
    if (stat_at(o->directory, o->path, &st, 0) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return pass(call);
    if (!enter())
        return pass(call);
    return leave_with(open_locked(call, o));
}

static long do_openat(const struct call *call) {
    struct opening o = {(int)call->a[0], (const char *)call->a[1], (unsigned)call->a[2]};
    return do_open(call, &o);
}

static long do_openat2(const struct call *call) {
    const struct open_how *how = (const struct open_how *)call->a[2];
    struct opening o = {(int)call->a[0], (const char *)call->a[1], how->flags};
    return do_open(call, &o);
}

/* ---- Names ------------------------------------------------------------------------------------- */

/* mkdirat, symlinkat, mknodat: a new entry that is not a descriptor. */
static long make_entry(const struct call *call, struct operation *op, int directory,
                       const char *path) {
    struct place place;
    struct stat st;
    if (!locate(directory, path, &place) || stat_at(directory, path, &st, AT_SYMLINK_NOFOLLOW))
        return pass(call);
    long result = attempt(call, op);
    if (result < 0 || !stat_at(directory, path, &st, AT_SYMLINK_NOFOLLOW))
        return result;
    set_state(identity_of(&st), STATE_WATCHED);
    name_operation(op, &place);
    op->head.file = identity_of(&st);
    commit(op);
    return result;
}

static long do_mkdirat(const struct call *call) {
    struct operation op = OPERATION(KIND_MKDIR);
    if (!enter())
        return pass(call);
    return leave_with(make_entry(call, &op, (int)call->a[0], (const char *)call->a[1]));
}

static long do_symlinkat(const struct call *call) {
    struct operation op = OPERATION(KIND_SYMLINK);
    struct iovec target = {(void *)call->a[0], strlen((const char *)call->a[0])};
    op.pieces = &target;
    op.head.data_size = (uint32_t)target.iov_len;
    if (!enter())
        return pass(call);
    return leave_with(make_entry(call, &op, (int)call->a[1], (const char *)call->a[2]));
}

static long do_mknodat(const struct call *call) {
    struct operation op = OPERATION(KIND_CREATE);
    const char *path = (const char *)call->a[1];
    struct place place;
    mode_t type = (mode_t)call->a[2] & S_IFMT;
    if (!enter())
        return pass(call);
    if (type == 0 || type == S_IFREG)
        return leave_with(make_entry(call, &op, (int)call->a[0], path));
    if (locate((int)call->a[0], path, &place))
        warn_locked("a special file was made; the trace does not have it: ", path);
    return leave_with(pass(call));
}

/* Once its last name is removed, the inode may be reused for another file. */
static void lost_a_name(const struct stat *st) {
    if (S_ISDIR(st->st_mode))
        set_state(identity_of(st), STATE_UNKNOWN);
    else if (st->st_nlink <= 1)
        set_state(identity_of(st), STATE_ORPHAN);
}

static long unlink_locked(const struct call *call) {
    int directory = (int)call->a[0], removes_directory = (call->a[2] & AT_REMOVEDIR) != 0;
    const char *path = (const char *)call->a[1];
    struct operation op = OPERATION(removes_directory ? KIND_RMDIR : KIND_UNLINK);
    struct place place;
    struct stat st;
    if (!locate(directory, path, &place) || !stat_at(directory, path, &st, AT_SYMLINK_NOFOLLOW) ||
        (S_ISDIR(st.st_mode) != 0) != removes_directory)
        return pass(call);
    name_operation(&op, &place);
    op.head.file = identity_of(&st);
    keep_rest_at(directory, path, &st, 0);
    long result = attempt(call, &op);
    if (result < 0)
        return result;
    lost_a_name(&st);
    commit(&op);
    return result;
}

static long do_unlinkat(const struct call *call) {
    return enter() ? leave_with(unlink_locked(call)) : pass(call);
}

/* The content of a file from outside becomes the record's data: its writes were not recorded. */
static void capture_content(struct operation *op, struct iovec *piece, int directory,
                            const char *path, const struct stat *st) {
    uint64_t size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size;
    op->head.flags |= FLAG_MOVED_IN;
    op->head.length = st->st_mode;
    *piece = (struct iovec){data_room(op, size), size};
    op->pieces = piece;
    if (!piece->iov_base || !size)
        return;
    op->head.data_size = (uint32_t)size;
    if (S_ISLNK(st->st_mode)) {
        RAW(SYS_readlinkat, directory, (long)path, (long)piece->iov_base, (long)size);
        return;
    }
    long fd = RAW(SYS_openat, directory, (long)path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    read_range((int)fd, piece->iov_base, 0, size);
    RAW(SYS_close, fd);
}

static void watch_for_moved_root(const struct stat *moved) {
    struct stat st;
    if (S_ISDIR(moved->st_mode) && (!stat_at(AT_FDCWD, control->root_path, &st, 0) ||
                                    !same(identity_of(&st), control->root)))
        warn_locked("the watched directory itself was renamed; nothing is seen from here on: ",
                    control->root_path);
}

struct renaming {
    int from_directory, to_directory;
    const char *from_path, *to_path;
    unsigned flags;
    struct place from, to;
    struct stat moved, replaced;
    int replaces;
};

static void describe_rename(struct operation *op, const struct renaming *r) {
    if (r->from.watched)
        name_operation(op, &r->from);
    op->head.file = identity_of(&r->moved);
    if (!r->to.watched) {
        op->head.kind = S_ISDIR(r->moved.st_mode) ? KIND_RMDIR : KIND_UNLINK;
        op->head.flags |= FLAG_MOVED_OUT;
        return;
    }
    op->head.parent2 = r->to.parent;
    op->head.name2_size = r->to.name_size;
    op->name2 = r->to.name;
    if (r->replaces)
        op->head.replaced = identity_of(&r->replaced);
    if (r->flags & RENAME_EXCHANGE)
        op->head.flags |= FLAG_EXCHANGE;
}

static void settle_rename(const struct renaming *r) {
    if (r->from.watched != r->to.watched) {
        if (S_ISDIR(r->moved.st_mode)) {
            warn_locked("a directory was moved across the border of the watched directory; "
                        "its content is not in the trace: ", r->from_path);
            forget_all_states();
        } else if (r->moved.st_nlink <= 1)
            set_state(identity_of(&r->moved), r->to.watched ? STATE_WATCHED : STATE_FOREIGN);
    }
    if (r->flags & RENAME_EXCHANGE)
        warn_locked("two names were exchanged; the trace shows a plain rename: ", r->to_path);
    else if (r->replaces)
        lost_a_name(&r->replaced);
}

static long rename_locked(const struct call *call, struct renaming *r) {
    struct operation op = OPERATION(KIND_RENAME);
    struct iovec content;
    locate(r->from_directory, r->from_path, &r->from);
    locate(r->to_directory, r->to_path, &r->to);
    if (!stat_at(r->from_directory, r->from_path, &r->moved, AT_SYMLINK_NOFOLLOW))
        return pass(call);
    r->replaces = stat_at(r->to_directory, r->to_path, &r->replaced, AT_SYMLINK_NOFOLLOW);
    if ((!r->from.watched && !r->to.watched) || (r->replaces && r->flags & RENAME_NOREPLACE) ||
        /* Two names of one file: rename does nothing and reports success. */
        (r->replaces && same(identity_of(&r->moved), identity_of(&r->replaced)))) {
        long result = pass(call);
        if (result == 0)
            watch_for_moved_root(&r->moved);
        return result;
    }
    describe_rename(&op, r);
    if (r->from.watched)
        keep_rest_at(r->from_directory, r->from_path, &r->moved, 0);
    if (r->to.watched && r->replaces)
        keep_rest_at(r->to_directory, r->to_path, &r->replaced, 0);
    long result = attempt(call, &op);
    if (result < 0)
        return result;
    if (!r->from.watched)
        capture_content(&op, &content, r->to_directory, r->to_path, &r->moved);
    commit(&op);
    settle_rename(r);
    watch_for_moved_root(&r->moved);
    return result;
}

static long do_renameat2(const struct call *call) {
    const long *a = call->a;
    struct renaming r = {.from_directory = (int)a[0], .from_path = (const char *)a[1],
                         .to_directory = (int)a[2], .to_path = (const char *)a[3],
                         .flags = call->number == SYS_renameat2 ? (unsigned)a[4] : 0};
    return enter() ? leave_with(rename_locked(call, &r)) : pass(call);
}

/* A file may be linked by its descriptor (O_TMPFILE): it has no old name, but is still watched. */
static int link_source_is_ours(const struct call *call, const struct stat *st,
                               const struct place *from) {
    const char *path = (const char *)call->a[1];
    if (from->watched)
        return 1;
    if (!*path)
        return examine((int)call->a[0], st) != STATE_FOREIGN;
    return call->a[4] & AT_SYMLINK_FOLLOW && watched_path((int)call->a[0], path, st);
}

static long link_locked(const struct call *call) {
    const char *from_path = (const char *)call->a[1], *to_path = (const char *)call->a[3];
    int from_directory = (int)call->a[0], to_directory = (int)call->a[2];
    int stat_flags = (call->a[4] & AT_SYMLINK_FOLLOW ? 0 : AT_SYMLINK_NOFOLLOW) |
                     (int)(call->a[4] & AT_EMPTY_PATH);
    struct operation op = OPERATION(KIND_LINK);
    struct place from = {.name = ""}, to;
    struct stat st, there;
    struct iovec content;
    if (!locate(to_directory, to_path, &to) ||
        stat_at(to_directory, to_path, &there, AT_SYMLINK_NOFOLLOW) ||
        !stat_at(from_directory, from_path, &st, stat_flags) || S_ISDIR(st.st_mode))
        return pass(call);
    if (*from_path && locate(from_directory, from_path, &from))
        name_operation(&op, &from);
    op.head.file = identity_of(&st);
    op.head.parent2 = to.parent;
    op.head.name2_size = to.name_size;
    op.name2 = to.name;
    int ours = link_source_is_ours(call, &st, &from);
    long result = attempt(call, &op);
    if (result < 0)
        return result;
    if (!ours)
        capture_content(&op, &content, to_directory, to_path, &st);
    set_state(op.head.file, STATE_WATCHED);
    commit(&op);
    return result;
}

static long do_linkat(const struct call *call) {
    return enter() ? leave_with(link_locked(call)) : pass(call);
}

/* ---- Mapped files ------------------------------------------------------------------------------ */

/*
** A store through a shared mapping is not a call. So each mapped file has a shadow, the content that the
** trace knows; where the target's memory differs from it, there were stores. They are looked for before each
** operation, each acknowledgement and each msync, and become one write per run of changed pages. The order of
** the stores in between is not known, so a kill before them undoes all of them, and no kill is made between
** two of them (FLAG_JOINED). Forked children share the shadow.
**
** The memory is read by process_vm_readv, which fails where the target's own access would raise SIGBUS. There
** is no mapping or descriptor of our own: it would keep locks and leases of the target alive. Whole pages are
** recorded; the harness cuts them off at the size that the trace knows.
*/
#define MOST_MAPPED 16u
#define MOST_RANGES 64u
#define LARGEST_MAPPED (64UL << 20)
#define PAGE 4096UL
#define CHUNK 16UL /* pages that are read at once */

struct shadow {
    uint64_t dirty_from, dirty_until; /* what was changed since the last sync lies between these */
    uint32_t abandoned;               /* another process goes on with a larger one */
};

static struct mapped {
    struct identity file;
    struct shadow *shadow; /* its content follows after a page */
    uint64_t size;
    char path[256]; /* for messages */
} mapped[MOST_MAPPED];

static struct range {
    uint64_t start, end, offset; /* addresses, and the place of the first one in the file */
    struct identity file;
} ranges[MOST_RANGES];

static uint64_t whole_pages(uint64_t size) { return (size + PAGE - 1) & ~(PAGE - 1); }

static uint8_t *known_content(const struct mapped *m) { return (uint8_t *)m->shadow + PAGE; }

static struct mapped *mapped_file(struct identity file) {
    for (unsigned i = 0; i < mapped_files; i++)
        if (same(mapped[i].file, file))
            return &mapped[i];
    return NULL;
}

/* Once per file: from here on nothing is certain about it. */
static void warn_of_mapping(struct identity file, const char *what, const char *path) {
    if (known_state(file) & STATE_MAPPED)
        return;
    set_state(file, known_state(file) | STATE_MAPPED);
    warn_locked(what, path);
}

static int holds_stores(struct identity file) {
    const struct mapped *m = mapped_file(file);
    return m && m->shadow->dirty_from < m->shadow->dirty_until;
}

static void widen(struct shadow *shadow, uint64_t from, uint64_t until) {
    if (shadow->dirty_from == shadow->dirty_until) {
        shadow->dirty_from = from;
        shadow->dirty_until = until;
    }
    if (from < shadow->dirty_from)
        shadow->dirty_from = from;
    if (until > shadow->dirty_until)
        shadow->dirty_until = until;
}

static uint8_t pages_read[CHUNK * PAGE];

/* How many pages could be read, or written, from this address on; at most a chunk. */
static unsigned long transfer(long number, uint64_t address, uint64_t until, uint8_t *ours) {
    struct iovec here, there[CHUNK];
    unsigned long count = 0;
    for (; count < CHUNK && address + count * PAGE < until; count++)
        there[count] = (struct iovec){(void *)(address + count * PAGE), PAGE};
    here = (struct iovec){ours, count * PAGE};
    long done = count ? RAW(number, self.pid, (long)&here, 1, (long)there, (long)count, 0) : 0;
    return done > 0 ? (unsigned long)done / PAGE : 0;
}

typedef void (*page_visitor)(struct mapped *, uint64_t offset, uint64_t address);

/* Calls `visit` for each page that differs from the shadow; its content is in pages_read. */
static uint64_t visit_stores(struct mapped *m, const struct range *r, page_visitor visit) {
    uint64_t found = 0;
    for (uint64_t at = r->start; at < r->end;) {
        unsigned long got = transfer(SYS_process_vm_readv, at, r->end, pages_read);
        for (unsigned long i = 0; i < got; i++) {
            uint64_t offset = r->offset + (at - r->start) + i * PAGE;
            if (offset + PAGE <= m->size && memcmp(pages_read + i * PAGE, known_content(m) + offset, PAGE)) {
                found++;
                if (visit) {
                    memmove(pages_read, pages_read + i * PAGE, PAGE);
                    visit(m, offset, at + i * PAGE);
                    got = i + 1; /* the rest was overwritten: it is read again */
                }
            }
        }
        if (!got)
            break;
        at += got * PAGE;
    }
    return found;
}

static uint64_t visit_all_stores(page_visitor visit) {
    uint64_t found = 0;
    for (unsigned i = 0; i < MOST_RANGES; i++) {
        struct mapped *m = ranges[i].end ? mapped_file(ranges[i].file) : NULL;
        if (m && m->shadow->abandoned)
            warn_of_mapping(m->file, "a file was mapped by several processes; stores are not seen: ", m->path);
        else if (m)
            found += visit_stores(m, &ranges[i], visit);
    }
    return found;
}

static void undo_page(struct mapped *m, uint64_t offset, uint64_t address) {
    transfer(SYS_process_vm_writev, address, address + PAGE, known_content(m) + offset);
}

static struct {
    struct mapped *file;
    uint64_t from, until;
    int joined;
} run;

static void end_run(void) {
    struct operation op = OPERATION(KIND_WRITE);
    if (!run.file)
        return;
    struct iovec piece = {known_content(run.file) + run.from, run.until - run.from};
    op.head.file = run.file->file;
    op.head.offset = (int64_t)run.from;
    op.head.flags = FLAG_MAPPED | (run.joined ? FLAG_JOINED : 0);
    op.head.length = op.head.data_size = (uint32_t)piece.iov_len;
    op.pieces = &piece;
    widen(run.file->shadow, run.from, run.until);
    run.file = NULL;
    run.joined = 1;
    if (control->action == ACTION_KILL_AFTER && is_due(KIND_WRITE))
        doomed = 1;
    if (control->action == ACTION_KILL_BEFORE && is_due(KIND_WRITE)) {
        note_fired(FIRED_YES);
        kill_everything();
    }
    commit(&op);
}

static void note_page(struct mapped *m, uint64_t offset, uint64_t address) {
    (void)address;
    if (run.file != m || run.until != offset) {
        end_run();
        run.file = m;
        run.from = offset;
    }
    run.until = offset + PAGE;
    memcpy(known_content(m) + offset, pages_read, PAGE);
}

static void note_stores(void) {
    if (!visit_all_stores(NULL))
        return;
    if (control->action == ACTION_KILL_BEFORE && is_due(KIND_WRITE)) {
        visit_all_stores(undo_page);
        note_fired(FIRED_YES);
        kill_everything();
    }
    run.file = NULL;
    run.joined = 0;
    visit_all_stores(note_page);
    end_run();
}

/* A mapped file was changed, or synced, by other means. */
static void refresh_shadow(const struct operation *op) {
    const struct record *head = &op->head;
    struct mapped *m = mapped_file(head->file);
    int changes = head->kind == KIND_WRITE || head->kind == KIND_TRUNCATE || head->kind == KIND_PUNCH;
    if (!m) {
        if (changes && known_state(head->file) & STATE_SHADOWED)
            warn_of_mapping(head->file, "a file that another process has mapped was changed", "");
        return;
    }
    uint64_t from = (uint64_t)head->offset, until = from + head->length;
    if (head->kind == KIND_FSYNC || head->kind == KIND_FDATASYNC)
        m->shadow->dirty_from = m->shadow->dirty_until = 0;
    if (!changes)
        return;
    if (head->kind == KIND_TRUNCATE)
        from = head->length, until = m->size;
    if (until > m->size)
        until = m->size;
    if (from >= until)
        return;
    widen(m->shadow, from, until);
    if (head->kind == KIND_WRITE && control->mode == MODE_RECORD)
        gather(known_content(m) + from, op->pieces, until - from);
    else if (head->kind != KIND_WRITE)
        memset(known_content(m) + from, 0, until - from);
}

static void forget_mappings(void) {
    for (; mapped_files; mapped_files--)
        RAW(SYS_munmap, (long)mapped[mapped_files - 1].shadow, (long)(mapped[mapped_files - 1].size + PAGE));
    memset(ranges, 0, sizeof ranges);
}

/* SQLite's index and LMDB's table of readers: made anew by whoever opens the database first. */
static int is_shared_memory(const char *path) {
    static const char *const ends[] = {"-shm", "/lock.mdb", "-lock"};
    size_t size = strlen(path);
    for (unsigned i = 0; i < LENGTH(ends); i++)
        if (size > strlen(ends[i]) && strcmp(path + size - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}

static struct shadow *new_shadow(uint64_t size) {
    long at = RAW(SYS_mmap, 0, (long)(size + PAGE), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return at < 0 && at > -4096 ? NULL : (struct shadow *)at;
}

static struct range *free_range(void) {
    for (unsigned i = 0; i < MOST_RANGES; i++)
        if (!ranges[i].end)
            return &ranges[i];
    return NULL;
}

/* What the target maps, unmaps or moves is no longer where it was. */
static void forget_range(uint64_t start, uint64_t end) {
    for (unsigned i = 0; i < MOST_RANGES; i++) {
        struct range *r = &ranges[i], whole = *r, *rest;
        if (!r->end || r->start >= end || start >= r->end)
            continue;
        r->end = r->start < start ? start : 0;
        if (whole.end <= end)
            continue;
        if ((rest = r->end ? free_range() : r))
            *rest = (struct range){end, whole.end, whole.offset + (end - whole.start), whole.file};
        else
            warn_of_mapping(whole.file, "too many mappings: stores are not seen", "");
    }
}

/* False if stores through this mapping cannot be seen. The shadow's content is read through the mapping. */
static int add_range(uint64_t start, uint64_t size, uint64_t offset, struct identity file, const char *path) {
    struct mapped *m = mapped_file(file);
    struct range *r = free_range();
    uint64_t known = m ? m->size : 0, needed = whole_pages(offset + size);
    if (!r || needed > LARGEST_MAPPED || known_state(file) & STATE_MAPPED || is_shared_memory(path))
        return 0;
    if (!m && (mapped_files == MOST_MAPPED || known_state(file) & STATE_SHADOWED))
        return 0; /* or another process has its own shadow */
    *r = (struct range){start, start + whole_pages(size), offset, file};
    if (m && known >= needed)
        return 1;
    struct shadow *shadow = new_shadow(needed);
    if (!shadow) {
        r->end = 0;
        return 0;
    }
    if (m) {
        memcpy(shadow, m->shadow, known + PAGE);
        m->shadow->abandoned = 1;
        RAW(SYS_munmap, (long)m->shadow, (long)(known + PAGE));
    } else
        m = &mapped[mapped_files++];
    m->file = file;
    m->shadow = shadow;
    m->size = needed;
    strncpy(m->path, path, sizeof m->path - 1);
    set_state(file, known_state(file) | STATE_SHADOWED);
    return 1;
}

/* What the file holds already where the shadow is new. */
static void fill_shadow(int fd, struct identity file, uint64_t from) {
    struct mapped *m = mapped_file(file);
    if (m && from < m->size)
        read_range(fd, known_content(m) + from, (int64_t)from, m->size - from);
}

static long do_mmap(const struct call *call) {
    struct stat st;
    int fd = (int)call->a[4];
    long result = pass(call);
    if (result < 0 && result > -4096)
        return result;
    int ours = call->a[2] & PROT_WRITE && (call->a[3] & MAP_TYPE) != MAP_PRIVATE &&
               !(call->a[3] & MAP_ANONYMOUS) && watched_fd(fd, &st);
    if ((!ours && !mapped_files) || !enter())
        return result;
    forget_range((uint64_t)result, (uint64_t)result + whole_pages((uint64_t)call->a[1]));
    if (ours) {
        struct identity file = identity_of(&st);
        struct mapped *m = mapped_file(file);
        uint64_t known = m ? m->size : 0;
        control->shared_mappings++;
        if (add_range((uint64_t)result, (uint64_t)call->a[1], (uint64_t)call->a[5], file, real_path(fd)))
            fill_shadow(fd, file, known);
        else
            warn_of_mapping(file, "a file was mapped for shared writing; stores through it are not seen: ",
                            real_path(fd));
    }
    return leave_with(result);
}

static long do_munmap(const struct call *call) {
    if (!mapped_files || !enter()) /* what was stored has been noted */
        return pass(call);
    forget_range((uint64_t)call->a[0], (uint64_t)call->a[0] + whole_pages((uint64_t)call->a[1]));
    return leave_with(pass(call));
}

static long do_mremap(const struct call *call) {
    uint64_t start = (uint64_t)call->a[0], size = (uint64_t)call->a[2];
    if (!mapped_files || !enter())
        return pass(call);
    struct range old = {0};
    for (unsigned i = 0; i < MOST_RANGES; i++)
        if (ranges[i].end && ranges[i].start <= start && start < ranges[i].end)
            old = ranges[i];
    long result = pass(call);
    if (result < 0 && result > -4096)
        return leave_with(result);
    forget_range(start, start + whole_pages((uint64_t)call->a[1]));
    forget_range((uint64_t)result, (uint64_t)result + whole_pages(size));
    struct mapped *m = old.end ? mapped_file(old.file) : NULL;
    if (m) {
        uint64_t offset = old.offset + (start - old.start), known = m->size;
        char path[sizeof m->path];
        strcpy(path, m->path);
        if (!add_range((uint64_t)result, size, offset, old.file, path))
            warn_of_mapping(old.file, "a mapping was moved; stores through it are not seen: ", path);
        else if ((m = mapped_file(old.file))->size > known) /* it was extended: what is there is not ours */
            for (uint64_t at = known; at < m->size; at += CHUNK * PAGE)
                transfer(SYS_process_vm_readv, (uint64_t)result + (at - offset), (uint64_t)result + size,
                         known_content(m) + at);
    }
    return leave_with(result);
}

/* Whether this part of the target's memory has everything of the file that is not synced. */
static int covers(const struct range *r, uint64_t start, uint64_t end, const struct shadow *shadow) {
    uint64_t from = start > r->start ? start : r->start, until = end < r->end ? end : r->end;
    return shadow->dirty_from == shadow->dirty_until ||
           (shadow->dirty_from >= r->offset + (from - r->start) &&
            shadow->dirty_until <= r->offset + (until - r->start));
}

static void commit_msync(uint64_t start, uint64_t end) {
    for (unsigned i = 0; i < MOST_RANGES; i++) {
        struct range *r = &ranges[i];
        struct mapped *m = r->start < end && start < r->end ? mapped_file(r->file) : NULL;
        struct operation op = OPERATION(KIND_FDATASYNC);
        if (!m)
            continue;
        if (!covers(r, start, end, m->shadow)) {
            warn_of_mapping(m->file, "msync of a part of a file; the rest is not synced: ", m->path);
            continue;
        }
        op.head.file = m->file;
        commit(&op);
    }
}

/* It makes durable what was stored, as fdatasync does; with MS_ASYNC it guarantees nothing. */
static long do_msync(const struct call *call) {
    uint64_t start = (uint64_t)call->a[0], end = start + whole_pages((uint64_t)call->a[1]);
    if (!mapped_files || !(call->a[2] & MS_SYNC) || start == end) {
        if (control->shared_mappings && !mapped_files &&
            __atomic_fetch_add(&control->msyncs, 1, __ATOMIC_RELAXED) == 0)
            warn("msync was called; what it makes durable is not in the trace", "");
        return pass(call);
    }
    if (!enter())
        return pass(call);
    if (control->action == ACTION_LOSE && is_due(KIND_FDATASYNC))
        note_fired(FIRED_NOT_APPLICABLE);
    else if (decide(KIND_FDATASYNC, 0) == REFUSE)
        return leave_with(-(long)control->action_errno);
    long result = pass(call);
    if (result == 0)
        commit_msync(start, end);
    return leave_with(result);
}

/* ---- What can only be reported ----------------------------------------------------------------- */

/* Attributes of users only: those of the system are not the target's own state. */
static int is_user_attribute(const char *name) { return strncmp(name, "user.", 5) == 0; }

static long warn_of_attribute(const struct call *call, const char *path) {
    warn_locked("an extended attribute was changed; it cannot be rebuilt: ", path);
    return leave_with(pass(call));
}

static long do_attribute(const struct call *call) {
    const char *path = (const char *)call->a[0];
    struct stat st;
    if (!is_user_attribute((const char *)call->a[1]) || !enter())
        return pass(call);
    if (!stat_at(AT_FDCWD, path, &st, 0) || !watched_path(AT_FDCWD, path, &st))
        return leave_with(pass(call));
    return warn_of_attribute(call, path);
}

static long do_fd_attribute(const struct call *call) {
    struct stat st;
    int fd = (int)call->a[0];
    if (!is_user_attribute((const char *)call->a[1]) || !watched_fd(fd, &st) || !enter())
        return pass(call);
    return warn_of_attribute(call, real_path(fd));
}

static long do_ioctl(const struct call *call) {
    struct stat st;
    long result = pass(call);
    unsigned request = (unsigned)call->a[1];
    if (result < 0 || (request != FICLONE && request != FICLONERANGE) ||
        !watched_fd((int)call->a[0], &st) || !enter())
        return result;
    warn_locked("a file was cloned by ioctl; the trace does not have its content: ",
                real_path((int)call->a[0]));
    return leave_with(result);
}

static long do_ring(const struct call *call) {
    long result = pass(call);
    if (result >= 0)
        warn(call->number == SYS_io_uring_setup ? "io_uring" : "libaio",
             " was set up; operations made through it are not seen");
    return result;
}

/* ---- The dispatcher ---------------------------------------------------------------------------- */

static long dispatch(const struct call *call) {
    const long *a = call->a;
    switch (call->number) {
    case SYS_write: return do_single_write(call, AT_POSITION);
    case SYS_pwrite64: return do_single_write(call, a[3]);
    case SYS_writev: return do_vector_write(call, AT_POSITION, 0);
    case SYS_pwritev: return do_vector_write(call, a[3], 0);
    case SYS_pwritev2: return do_vector_write(call, a[3], (int)a[5]);
    case SYS_sendfile: return do_sendfile(call);
    case SYS_copy_file_range: return do_ranged_copy(call);
    case SYS_splice: return do_ranged_copy(call);
    case SYS_truncate: return do_truncate(call);
    case SYS_ftruncate: return do_ftruncate(call);
    case SYS_fallocate: return do_fallocate(call);
    case SYS_fsync: return do_fsync(call, KIND_FSYNC);
    case SYS_fdatasync: return do_fsync(call, KIND_FDATASYNC);
    case SYS_sync: return do_sync(call);
    case SYS_syncfs: return do_syncfs(call);
    case SYS_sync_file_range: return do_sync_file_range(call);
    case SYS_openat: return do_openat(call);
    case SYS_openat2: return do_openat2(call);
    case SYS_mkdirat: return do_mkdirat(call);
    case SYS_symlinkat: return do_symlinkat(call);
    case SYS_mknodat: return do_mknodat(call);
    case SYS_unlinkat: return do_unlinkat(call);
    case SYS_renameat: return do_renameat2(call);
    case SYS_renameat2: return do_renameat2(call);
    case SYS_linkat: return do_linkat(call);
    case SYS_mmap: return do_mmap(call);
    case SYS_msync: return do_msync(call);
    case SYS_munmap: return do_munmap(call);
    case SYS_mremap: return do_mremap(call);
    case SYS_ioctl: return do_ioctl(call);
    case SYS_io_uring_setup: return do_ring(call);
    case SYS_io_setup: return do_ring(call);
    case SYS_setxattr: return do_attribute(call);
    case SYS_lsetxattr: return do_attribute(call);
    case SYS_removexattr: return do_attribute(call);
    case SYS_lremovexattr: return do_attribute(call);
    case SYS_fsetxattr: return do_fd_attribute(call);
    case SYS_fremovexattr: return do_fd_attribute(call);
    default: return pass(call);
    }
}

#if defined(__x86_64__)
/* Translates calls that newer architectures lack into their modern equivalents. */
static struct call modern(const struct call *call) {
    const long *a = call->a, cwd = AT_FDCWD;
    switch (call->number) {
    case SYS_open: return (struct call){SYS_openat, {cwd, a[0], a[1], a[2]}};
    case SYS_creat:
        return (struct call){SYS_openat, {cwd, a[0], O_CREAT | O_WRONLY | O_TRUNC, a[1]}};
    case SYS_mkdir: return (struct call){SYS_mkdirat, {cwd, a[0], a[1]}};
    case SYS_symlink: return (struct call){SYS_symlinkat, {a[0], cwd, a[1]}};
    case SYS_mknod: return (struct call){SYS_mknodat, {cwd, a[0], a[1], a[2]}};
    case SYS_unlink: return (struct call){SYS_unlinkat, {cwd, a[0], 0}};
    case SYS_rmdir: return (struct call){SYS_unlinkat, {cwd, a[0], AT_REMOVEDIR}};
    case SYS_rename: return (struct call){SYS_renameat2, {cwd, a[0], cwd, a[1], 0}};
    case SYS_link: return (struct call){SYS_linkat, {cwd, a[0], cwd, a[1], 0}};
    default: return *call;
    }
}
#else
static struct call modern(const struct call *call) { return *call; }
#endif

static long observe(struct call call) { return observing() ? dispatch(&call) : pass(&call); }

/* ---- The second layer: seccomp ----------------------------------------------------------------- */

static const unsigned trapped_always[] = {
    SYS_write, SYS_pwrite64, SYS_writev, SYS_pwritev, SYS_pwritev2, SYS_sendfile,
    SYS_copy_file_range, SYS_splice, SYS_truncate, SYS_ftruncate, SYS_fallocate, SYS_fsync,
    SYS_fdatasync, SYS_sync, SYS_syncfs, SYS_sync_file_range, SYS_openat2, SYS_mkdirat,
    SYS_symlinkat, SYS_mknodat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_linkat, SYS_msync,
    SYS_io_uring_setup, SYS_io_setup, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr,
    SYS_lremovexattr, SYS_fremovexattr,
#if defined(__x86_64__)
    SYS_creat, SYS_mkdir, SYS_symlink, SYS_mknod, SYS_unlink, SYS_rmdir, SYS_rename, SYS_link,
#endif
};

/* Jump targets, filled in when the program's length is known. */
enum { TO_ALLOW = 253, TO_TRAP, TO_PRETEND };

struct program {
    struct sock_filter code[160];
    unsigned short size;
};

static void emit(struct program *p, unsigned code, unsigned k, unsigned yes, unsigned no) {
    p->code[p->size++] = (struct sock_filter){(uint16_t)code, (uint8_t)yes, (uint8_t)no, k};
}

#define LOAD(field) emit(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field), 0, 0)
#define LOAD_ARGUMENT(n) LOAD(args[n]) /* the low half: little-endian */
#define IF_EQUAL(k, yes, no) emit(p, BPF_JMP | BPF_JEQ | BPF_K, (k), (yes), (no))
#define IF_BITS(k, yes, no) emit(p, BPF_JMP | BPF_JSET | BPF_K, (k), (yes), (no))
#define RETURN(k) emit(p, BPF_RET | BPF_K, (k), 0, 0)

static void resolve_jumps(struct program *p, const unsigned targets[]) {
    for (unsigned i = 0; i < p->size; i++) {
        struct sock_filter *s = &p->code[i];
        if (BPF_CLASS(s->code) != BPF_JMP)
            continue;
        if (s->jt >= TO_ALLOW)
            s->jt = (uint8_t)(targets[s->jt - TO_ALLOW] - i - 1);
        if (s->jf >= TO_ALLOW)
            s->jf = (uint8_t)(targets[s->jf - TO_ALLOW] - i - 1);
    }
}

/*
** Ends with `otherwise`, unless the call comes from the stub. With `spare_low`, calls from the first
** 4 GiB are allowed: statically linked programs live there, have no handler, and would die of the
** first trap; they are reported when they are started.
*/
static unsigned emit_origin_check(struct program *p, int spare_low, unsigned otherwise) {
    unsigned start = p->size;
    emit(p, BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4, 0, 0);
    IF_EQUAL(0, spare_low ? TO_ALLOW : 0, 0);
    IF_EQUAL(STUB_ADDRESS >> 32, 0, 3);
    LOAD(instruction_pointer);
    emit(p, BPF_ALU | BPF_AND | BPF_K, ~(STUB_SIZE - 1) & 0xFFFFFFFFu, 0, 0);
    IF_EQUAL(STUB_ADDRESS & 0xFFFFFFFFu, TO_ALLOW, 0);
    RETURN(otherwise);
    return start;
}

/* Calls that matter only with certain arguments. Each block is skipped for any other call. */
static void emit_conditional_traps(struct program *p) {
    IF_EQUAL(SYS_openat, 0, 2);
    LOAD_ARGUMENT(2);
    IF_BITS(CHANGING_OPEN, TO_TRAP, TO_ALLOW);
#if defined(__x86_64__)
    IF_EQUAL(SYS_open, 0, 2);
    LOAD_ARGUMENT(1);
    IF_BITS(CHANGING_OPEN, TO_TRAP, TO_ALLOW);
#endif
    IF_EQUAL(SYS_mmap, 0, 5);
    LOAD_ARGUMENT(2);
    IF_BITS(PROT_WRITE, 0, TO_ALLOW);
    LOAD_ARGUMENT(3);
    IF_BITS(MAP_ANONYMOUS, TO_ALLOW, 0);
    IF_BITS(MAP_SHARED, TO_TRAP, TO_ALLOW);
    IF_EQUAL(SYS_ioctl, 0, 3);
    LOAD_ARGUMENT(1);
    IF_EQUAL(FICLONE, TO_TRAP, 0);
    IF_EQUAL(FICLONERANGE, TO_TRAP, TO_ALLOW);
    /*
    ** No other code may handle SIGSYS. Pretending success is the only answer that also works in the
    ** child of posix_spawn, which resets all handlers with all signals blocked (a trap would kill it).
    */
    IF_EQUAL(SYS_rt_sigaction, 0, 4);
    LOAD_ARGUMENT(0);
    IF_EQUAL(SIGSYS, 0, TO_ALLOW);
    LOAD_ARGUMENT(1);
    IF_EQUAL(0, TO_ALLOW, TO_PRETEND);
}

/* Irrelevant calls are allowed first and unconditionally: the kernel then caches "always allowed". */
static void build_filter(struct program *p, int spare_low) {
    unsigned targets[3];
    LOAD(arch);
    IF_EQUAL(OUR_ARCH, 0, TO_TRAP); /* int 0x80: numbers and arguments of another machine */
    LOAD(nr);
#if defined(__x86_64__)
    IF_BITS(0x80000000u, TO_ALLOW, 0); /* no call at all */
    IF_BITS(X32_BIT, TO_TRAP, 0);
#endif
    for (unsigned i = 0; i < LENGTH(trapped_always); i++)
        IF_EQUAL(trapped_always[i], TO_TRAP, 0);
    emit_conditional_traps(p);
    RETURN(SECCOMP_RET_ALLOW);
    targets[TO_TRAP - TO_ALLOW] = emit_origin_check(p, spare_low, SECCOMP_RET_TRAP);
    targets[TO_PRETEND - TO_ALLOW] = emit_origin_check(p, spare_low, SECCOMP_RET_ERRNO);
    targets[TO_ALLOW - TO_ALLOW] = p->size; /* last: jumps only go forward */
    RETURN(SECCOMP_RET_ALLOW);
    resolve_jumps(p, targets);
}

struct kernel_sigaction {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

#define SIGNAL_BIT(signal) (1UL << ((signal)-1))

static unsigned long traps_seen; /* in this process */
static int filter_installed;     /* survives fork, as the filter does; detected again after exec */

/*
** A call by the interface of another machine could write anything. What a kernel without that interface
** answers is a refusal that programs expect.
*/
static long refuse_foreign_call(void) {
    static int reported;
    if (!reported) {
        reported = 1;
        warn("a 32-bit system call was refused: such calls are not recorded", "");
    }
    return -ENOSYS;
}

static void on_sigsys(int signal, siginfo_t *info, void *opaque) {
    ucontext_t *context = opaque;
    (void)signal;
    if (info->si_code != SYS_SECCOMP)
        return;
    struct call call = {info->si_syscall, CONTEXT_ARGUMENTS(CONTEXT_REGISTERS(context))};
    traps_seen++;
    if (control)
        __atomic_add_fetch(&control->trapped, 1, __ATOMIC_RELAXED);
    if (info->si_arch != OUR_ARCH || call.number & X32_BIT) {
        CONTEXT_RESULT(context) = refuse_foreign_call();
        return;
    }
    call = modern(&call);
    CONTEXT_RESULT(context) = observe(call);
}

/*
** SA_NODEFER: a handler of the target may interrupt ours and make calls that trap. SA_ONSTACK: Go
** makes system calls on 2 KiB stacks and provides a separate one for signals.
*/
static void install_handler(void) {
    struct kernel_sigaction action = {
        on_sigsys, SA_SIGINFO | SA_NODEFER | SA_RESTART | SA_ONSTACK | SIGNAL_RETURN_FLAG,
        SIGNAL_RETURN, 0};
    uint64_t set = SIGNAL_BIT(SIGSYS);
    RAW(SYS_rt_sigaction, SIGSYS, (long)&action, 0, sizeof action.mask);
    RAW(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&set, 0, sizeof set);
}

static long map_stub(void) {
    if (system_call != plain_syscall)
        return 0;
    long at = RAW(SYS_mmap, (long)STUB_ADDRESS, STUB_SIZE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != (long)STUB_ADDRESS)
        return at < 0 ? at : -EEXIST;
    memcpy((void *)STUB_ADDRESS, (void *)plain_syscall,
           (size_t)(plain_syscall_end - (const char *)plain_syscall));
    __builtin___clear_cache((char *)STUB_ADDRESS, (char *)STUB_ADDRESS + STUB_SIZE);
    long result = RAW(SYS_mprotect, (long)STUB_ADDRESS, STUB_SIZE, PROT_READ | PROT_EXEC);
    if (result == 0)
        system_call = (long (*)(long, long, long, long, long, long, long))STUB_ADDRESS;
    return result;
}

/* PR_GET_SECCOMP cannot tell our filter from a container's. A harmless call can. */
static int filter_is_inherited(void) {
    unsigned long before = traps_seen;
    plain_syscall(SYS_fsync, -1, 0, 0, 0, 0, 0);
    return traps_seen != before;
}

static int program_is_low(void) { return getauxval(AT_PHDR) >> 32 == 0; }

static long install_filter(void) {
    struct program program = {.size = 0};
    build_filter(&program, !program_is_low());
    struct sock_fprog filter = {program.size, program.code};
    unsigned long flags = SECCOMP_FILTER_FLAG_TSYNC | SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    long result = RAW(SYS_seccomp, SECCOMP_SET_MODE_FILTER, (long)flags, (long)&filter);
    if (result == -EACCES) { /* not root: a filter requires no_new_privs */
        RAW(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        result = RAW(SYS_seccomp, SECCOMP_SET_MODE_FILTER, (long)flags, (long)&filter);
    }
    return result;
}

static void ensure_filter(void) {
    if (filter_installed)
        return;
    long result = map_stub();
    if (result == 0) {
        install_handler();
        /* A program at low addresses needs the stricter filter on top of an inherited one. */
        result = filter_is_inherited() && !program_is_low() ? 0 : install_filter();
    }
    filter_installed = result == 0;
    if (result)
        warn("no seccomp filter: raw system calls and the C library's own writes are not seen", "");
}

/* ---- Activation -------------------------------------------------------------------------------- */

static int control_fits(const struct control *page, uint64_t size) {
    return page->magic == MAGIC && page->version == VERSION &&
           page->trace_size <= size - TRACE_OFFSET;
}

static long attach(const char *path) {
    struct stat st;
    long fd = RAW(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fd;
    long at = RAW(SYS_fstat, fd, (long)&st);
    if (at == 0)
        at = st.st_size < (off_t)TRACE_OFFSET ? -EINVAL
             : RAW(SYS_mmap, 0, st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd,
                   0);
    RAW(SYS_close, fd);
    if (at < 0 && at > -4096)
        return at;
    if (!control_fits((struct control *)at, (uint64_t)st.st_size)) {
        RAW(SYS_munmap, at, st.st_size);
        return -EINVAL;
    }
    if (control)
        RAW(SYS_munmap, (long)control, (long)mapped_size);
    mapped_size = (size_t)st.st_size;
    slots = (struct slot *)(at + (long)TABLE_OFFSET);
    trace = (uint8_t *)(at + (long)TRACE_OFFSET);
    populated = 0;
    control = (struct control *)at;
    return 0;
}

static long choose_root(const char *watched) {
    struct stat st;
    if (watched) {
        long fd = RAW(SYS_openat, AT_FDCWD, (long)watched, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return fd;
        const char *path = real_path((int)fd);
        RAW(SYS_close, fd);
        if (!*path || strlen(path) >= sizeof control->root_path)
            return -ENAMETOOLONG;
        strcpy(control->root_path, path);
    } else if (control->root.inode) /* a later process; the directory may have been removed */
        return 0;
    if (!stat_at(AT_FDCWD, control->root_path, &st, 0) || !S_ISDIR(st.st_mode))
        return -ENOTDIR;
    control->root = identity_of(&st);
    return 0;
}

/* The first process leads its own group, so that a kill of the group does not hit the harness. */
static void choose_group(void) {
    long pid = RAW(SYS_getpid);
    if (control->group)
        return;
    if (RAW(SYS_getpgid, 0) != pid)
        RAW(SYS_setpgid, 0, 0);
    control->group = RAW(SYS_getpgid, 0) == pid ? (uint32_t)pid : 0;
}

static long activate(const char *watched, const char *path) {
    if (strlen(path) >= sizeof control_path)
        return -ENAMETOOLONG;
    long result = attach(path);
    if (result == 0 && (result = choose_root(watched)) < 0)
        control->mode = MODE_OFF;
    if (result < 0)
        return result;
    strcpy(control_path, path);
    forget_mappings();
    prepare_self();
    choose_group();
    if (control->options & OPTION_SECCOMP)
        ensure_filter();
    return 0;
}

/* Called from Python, see chaoskit/inside/interposer.py. Returns zero or a negative errno. */
EXPORT long chaoskit_interposer_start(const char *watched, const char *path) {
    return activate(watched, path);
}

EXPORT void chaoskit_interposer_stop(void) {
    if (!observing() || !enter())
        return;
    control->mode = MODE_OFF;
    leave();
}

EXPORT const struct control *chaoskit_interposer_page(void) { return control; }

/* Before an acknowledgement: what was stored through mappings until now comes before it. */
EXPORT void chaoskit_interposer_look(void) {
    if (mapped_files && observing() && enter())
        leave();
}

#define CONTROL_VARIABLE "CHAOSKIT_CONTROL="
#define PRELOAD_VARIABLE "LD_PRELOAD="

static char *find_variable(char *const environment[], const char *variable) {
    size_t size = strlen(variable);
    for (; environment && *environment; environment++)
        if (strncmp(*environment, variable, size) == 0)
            return *environment + size;
    return NULL;
}

static void complain(const char *what, const char *path) {
    struct iovec text[] = {{(void *)what, strlen(what)}, {(void *)path, strlen(path)}, {"\n", 1}};
    RAW(SYS_writev, STDERR_FILENO, (long)text, LENGTH(text));
}

/*
** Runs before the constructors of all other libraries, and before the C library has set up its
** environment: hence the third argument. Without the variable the library stays dormant.
*/
__attribute__((constructor)) static void on_load(int argc, char **argv, char **environment) {
    const char *path = find_variable(environment, CONTROL_VARIABLE);
    Dl_info info;
    (void)argc, (void)argv;
    if (dladdr((void *)on_load, &info) && strlen(info.dli_fname) < sizeof library_path)
        strcpy(library_path, info.dli_fname);
    if (!path || !*path)
        return;
    /* First of all: an inherited filter kills a process without a handler. */
    if (map_stub() == 0)
        install_handler();
    if (activate(NULL, path) < 0)
        complain("chaoskit interposer: cannot use the control file ", path);
}

/* ---- Programs that are started ----------------------------------------------------------------- */

static const char *why_not_covered_elf(long fd, const Elf64_Ehdr *elf) {
    Elf64_Phdr segment;
    if (elf->e_ident[EI_CLASS] != ELFCLASS64 || elf->e_machine != OUR_ELF_MACHINE)
        return "a program for another kind of machine was started; it is not covered: ";
    for (int i = 0; i < elf->e_phnum; i++) {
        long at = (long)(elf->e_phoff + (uint64_t)i * elf->e_phentsize);
        if (RAW(SYS_pread64, fd, (long)&segment, sizeof segment, at) == sizeof segment &&
            segment.p_type == PT_INTERP)
            return NULL;
    }
    return "a statically linked program was started; it is not covered: ";
}

/* Reduces "#! interpreter argument" to the interpreter; NULL if it is not a script. */
static char *interpreter_of(char *text, long size) {
    if (size < 3 || text[0] != '#' || text[1] != '!')
        return NULL;
    text[size] = 0;
    text += 2 + strspn(text + 2, " \t");
    text[strcspn(text, " \t\n")] = 0;
    return text;
}

static void report_if_not_covered(int directory, const char *path, int flags) {
    union {
        Elf64_Ehdr elf;
        char text[256];
    } head;
    char *interpreter;
    const char *why = NULL;
    for (int depth = 0; depth < 4; depth++) {
        long fd = flags & AT_EMPTY_PATH && !*path
                      ? reopen(directory, O_RDONLY)
                      : RAW(SYS_openat, directory, (long)path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return;
        long size = RAW(SYS_pread64, fd, (long)&head, sizeof head - 1, 0);
        if (size >= (long)sizeof head.elf && memcmp(head.text, ELFMAG, SELFMAG) == 0)
            why = why_not_covered_elf(fd, &head.elf);
        RAW(SYS_close, fd);
        if (why)
            warn(why, path);
        if (!(interpreter = interpreter_of(head.text, size)))
            return;
        static char kept[sizeof head.text];
        path = strcpy(kept, interpreter);
        flags = 0;
    }
}

/* Like execvp: the first executable file in PATH. */
static void report_if_not_covered_in_path(const char *file, const char *path) {
    char candidate[PATH_MAX];
    if (strchr(file, '/')) {
        report_if_not_covered(AT_FDCWD, file, 0);
        return;
    }
    for (const char *end; path && *path; path = *end ? end + 1 : end) {
        end = strchrnul(path, ':');
        size_t size = (size_t)(end - path);
        if (size + strlen(file) + 2 > sizeof candidate)
            continue;
        memcpy(candidate, path, size);
        candidate[size] = '/';
        strcpy(candidate + size + 1, file);
        if (RAW(SYS_faccessat, AT_FDCWD, (long)candidate, X_OK) == 0) {
            report_if_not_covered(AT_FDCWD, candidate, 0);
            return;
        }
    }
}

/*
** Adds our variables to the environment if they are missing: with the inherited filter but without
** them, a program would die of its first write. `room` is on the caller's stack: after vfork nothing
** else is safe.
*/
static size_t environment_room(char *const environment[]) {
    size_t count = 3;
    const char *preload = find_variable(environment, PRELOAD_VARIABLE);
    for (; environment && *environment; environment++)
        count++;
    return count * sizeof(char *) + sizeof CONTROL_VARIABLE + strlen(control_path) +
           sizeof PRELOAD_VARIABLE + strlen(library_path) + 1 + (preload ? strlen(preload) : 0);
}

static char **covered_environment(char *const environment[], void *room) {
    const char *preload = find_variable(environment, PRELOAD_VARIABLE);
    char **list = room, **next = list;
    for (char *const *e = environment; e && *e; e++)
        if (!find_variable((char *const[]){*e, NULL}, CONTROL_VARIABLE) &&
            !find_variable((char *const[]){*e, NULL}, PRELOAD_VARIABLE))
            *next++ = *e;
    char *text = (char *)(next + 3);
    next[0] = text;
    text = stpcpy(stpcpy(text, CONTROL_VARIABLE), control_path) + 1;
    next[1] = text;
    text = stpcpy(text, PRELOAD_VARIABLE);
    if (!preload || !strstr(preload, library_path))
        text = stpcpy(stpcpy(text, library_path), preload && *preload ? ":" : "");
    if (preload)
        strcpy(text, preload);
    next[2] = NULL;
    return list;
}

/* A macro, because memory from alloca must live in the frame that starts the program. */
#define COVER_ENVIRONMENT(environment)                                                          \
    if (observing())                                                                            \
        environment = covered_environment(environment, alloca(environment_room(environment)))

#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

/* ---- The first layer: the C library's entry points --------------------------------------------- */

static long with_errno(long result) {
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

#define WRAPPED(number, ...) with_errno(observe((struct call){number, {__VA_ARGS__}}))

static long wrapped_open(int directory, const char *path, int flags, mode_t mode) {
    return WRAPPED(SYS_openat, directory, (long)path, flags, mode);
}

#define MODE_ARGUMENT(mode, flags)               \
    mode_t mode = 0;                             \
    if ((flags) & (O_CREAT | TMPFILE_BIT)) {     \
        va_list rest;                            \
        va_start(rest, flags);                   \
        mode = va_arg(rest, mode_t);             \
        va_end(rest);                            \
    }

EXPORT int open(const char *path, int flags, ...) {
    MODE_ARGUMENT(mode, flags)
    return (int)wrapped_open(AT_FDCWD, path, flags, mode);
}
EXPORT int open64(const char *path, int flags, ...) {
    MODE_ARGUMENT(mode, flags)
    return (int)wrapped_open(AT_FDCWD, path, flags, mode);
}
EXPORT int openat(int directory, const char *path, int flags, ...) {
    MODE_ARGUMENT(mode, flags)
    return (int)wrapped_open(directory, path, flags, mode);
}
EXPORT int openat64(int directory, const char *path, int flags, ...) {
    MODE_ARGUMENT(mode, flags)
    return (int)wrapped_open(directory, path, flags, mode);
}
EXPORT int creat(const char *path, mode_t mode) {
    return (int)wrapped_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
EXPORT int creat64(const char *path, mode_t mode) {
    return (int)wrapped_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
/* _FORTIFY_SOURCE turns an open without a mode into this. */
EXPORT int __open_2(const char *path, int flags) {
    return (int)wrapped_open(AT_FDCWD, path, flags, 0);
}
EXPORT int __open64_2(const char *path, int flags) {
    return (int)wrapped_open(AT_FDCWD, path, flags, 0);
}
EXPORT int __openat_2(int directory, const char *path, int flags) {
    return (int)wrapped_open(directory, path, flags, 0);
}
EXPORT int __openat64_2(int directory, const char *path, int flags) {
    return (int)wrapped_open(directory, path, flags, 0);
}

EXPORT ssize_t write(int fd, const void *bytes, size_t size) {
    return WRAPPED(SYS_write, fd, (long)bytes, (long)size);
}
EXPORT ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    return WRAPPED(SYS_pwrite64, fd, (long)bytes, (long)size, offset);
}
EXPORT ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    return WRAPPED(SYS_pwrite64, fd, (long)bytes, (long)size, offset);
}
EXPORT ssize_t writev(int fd, const struct iovec *pieces, int count) {
    return WRAPPED(SYS_writev, fd, (long)pieces, count);
}
EXPORT ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset) {
    return WRAPPED(SYS_pwritev, fd, (long)pieces, count, offset);
}
EXPORT ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t offset) {
    return WRAPPED(SYS_pwritev, fd, (long)pieces, count, offset);
}
EXPORT ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t offset, int flags) {
    return WRAPPED(SYS_pwritev2, fd, (long)pieces, count, offset, 0, flags);
}
EXPORT ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t offset,
                           int flags) {
    return WRAPPED(SYS_pwritev2, fd, (long)pieces, count, offset, 0, flags);
}
EXPORT ssize_t sendfile(int to, int from, off_t *offset, size_t size) {
    return WRAPPED(SYS_sendfile, to, from, (long)offset, (long)size);
}
EXPORT ssize_t sendfile64(int to, int from, off64_t *offset, size_t size) {
    return WRAPPED(SYS_sendfile, to, from, (long)offset, (long)size);
}
EXPORT ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset,
                               size_t size, unsigned flags) {
    return WRAPPED(SYS_copy_file_range, from, (long)from_offset, to, (long)to_offset, (long)size,
                   flags);
}
EXPORT ssize_t splice(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t size,
                      unsigned flags) {
    return WRAPPED(SYS_splice, from, (long)from_offset, to, (long)to_offset, (long)size, flags);
}

EXPORT int truncate(const char *path, off_t size) {
    return (int)WRAPPED(SYS_truncate, (long)path, size);
}
EXPORT int truncate64(const char *path, off64_t size) {
    return (int)WRAPPED(SYS_truncate, (long)path, size);
}
EXPORT int ftruncate(int fd, off_t size) { return (int)WRAPPED(SYS_ftruncate, fd, size); }
EXPORT int ftruncate64(int fd, off64_t size) { return (int)WRAPPED(SYS_ftruncate, fd, size); }
EXPORT int fallocate(int fd, int mode, off_t offset, off_t size) {
    return (int)WRAPPED(SYS_fallocate, fd, mode, offset, size);
}
EXPORT int fallocate64(int fd, int mode, off64_t offset, off64_t size) {
    return (int)WRAPPED(SYS_fallocate, fd, mode, offset, size);
}
/* If the file system cannot allocate, the C library writes into each block: let it. */
EXPORT int posix_fallocate(int fd, off_t offset, off_t size) {
    long result = observe((struct call){SYS_fallocate, {fd, 0, offset, size}});
    return result == -EOPNOTSUPP ? NEXT(posix_fallocate)(fd, offset, size) : (int)-result;
}
EXPORT int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    return posix_fallocate(fd, offset, size);
}

EXPORT int fsync(int fd) { return (int)WRAPPED(SYS_fsync, fd); }
EXPORT int fdatasync(int fd) { return (int)WRAPPED(SYS_fdatasync, fd); }
EXPORT void sync(void) { observe((struct call){SYS_sync, {0}}); }
EXPORT int syncfs(int fd) { return (int)WRAPPED(SYS_syncfs, fd); }
EXPORT int sync_file_range(int fd, off64_t offset, off64_t size, unsigned flags) {
    return (int)WRAPPED(SYS_sync_file_range, fd, offset, size, flags);
}
EXPORT int munmap(void *address, size_t size) {
    return (int)WRAPPED(SYS_munmap, (long)address, (long)size);
}
EXPORT void *mremap(void *address, size_t size, size_t new_size, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    void *where = flags & MREMAP_FIXED ? va_arg(arguments, void *) : NULL;
    va_end(arguments);
    return (void *)WRAPPED(SYS_mremap, (long)address, (long)size, (long)new_size, flags, (long)where);
}
EXPORT int msync(void *address, size_t size, int flags) {
    return (int)WRAPPED(SYS_msync, (long)address, (long)size, flags);
}

EXPORT int close(int fd) {
    note_close(fd);
    return (int)WRAPPED(SYS_close, fd);
}
EXPORT int fclose(FILE *file) {
    if (observing()) {
        fflush(file); /* what it writes comes before the note */
        note_close(fileno(file));
    }
    return NEXT(fclose)(file);
}

EXPORT int rename(const char *from, const char *to) {
    return (int)WRAPPED(SYS_renameat2, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0);
}
EXPORT int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    return (int)WRAPPED(SYS_renameat2, from_directory, (long)from, to_directory, (long)to, 0);
}
EXPORT int renameat2(int from_directory, const char *from, int to_directory, const char *to,
                     unsigned flags) {
    return (int)WRAPPED(SYS_renameat2, from_directory, (long)from, to_directory, (long)to, flags);
}
EXPORT int link(const char *from, const char *to) {
    return (int)WRAPPED(SYS_linkat, AT_FDCWD, (long)from, AT_FDCWD, (long)to, 0);
}
EXPORT int linkat(int from_directory, const char *from, int to_directory, const char *to,
                  int flags) {
    return (int)WRAPPED(SYS_linkat, from_directory, (long)from, to_directory, (long)to, flags);
}
EXPORT int symlink(const char *target, const char *path) {
    return (int)WRAPPED(SYS_symlinkat, (long)target, AT_FDCWD, (long)path);
}
EXPORT int symlinkat(const char *target, int directory, const char *path) {
    return (int)WRAPPED(SYS_symlinkat, (long)target, directory, (long)path);
}
EXPORT int unlink(const char *path) {
    return (int)WRAPPED(SYS_unlinkat, AT_FDCWD, (long)path, 0);
}
EXPORT int unlinkat(int directory, const char *path, int flags) {
    return (int)WRAPPED(SYS_unlinkat, directory, (long)path, flags);
}
EXPORT int rmdir(const char *path) {
    return (int)WRAPPED(SYS_unlinkat, AT_FDCWD, (long)path, AT_REMOVEDIR);
}
EXPORT int mkdir(const char *path, mode_t mode) {
    return (int)WRAPPED(SYS_mkdirat, AT_FDCWD, (long)path, mode);
}
EXPORT int mkdirat(int directory, const char *path, mode_t mode) {
    return (int)WRAPPED(SYS_mkdirat, directory, (long)path, mode);
}
EXPORT int mknod(const char *path, mode_t mode, dev_t device) {
    return (int)WRAPPED(SYS_mknodat, AT_FDCWD, (long)path, mode, (long)device);
}
EXPORT int mknodat(int directory, const char *path, mode_t mode, dev_t device) {
    return (int)WRAPPED(SYS_mknodat, directory, (long)path, mode, (long)device);
}

EXPORT void *mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    return (void *)WRAPPED(SYS_mmap, (long)address, (long)size, protection, flags, fd, offset);
}
EXPORT void *mmap64(void *address, size_t size, int protection, int flags, int fd, off64_t offset) {
    return (void *)WRAPPED(SYS_mmap, (long)address, (long)size, protection, flags, fd, offset);
}
EXPORT int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    long argument = va_arg(rest, long);
    va_end(rest);
    return (int)WRAPPED(SYS_ioctl, fd, (long)request, argument);
}
EXPORT long syscall(long number, ...) {
    va_list rest;
    struct call call = {number, {0}};
    va_start(rest, number);
    for (unsigned i = 0; i < LENGTH(call.a); i++)
        call.a[i] = va_arg(rest, long);
    va_end(rest);
    call = modern(&call);
    return with_errno(observe(call));
}

/*
** The clock under the seed: while it is set, the wall clock advances by one millisecond each time it is
** looked at, so that a file name made from it is the same in every run. Below Python, because libraries
** bind `datetime` and `time` when they are imported. Clocks for measuring time are not touched.
*/
static int64_t seeded_clock; /* nanoseconds; zero: the real one */

EXPORT void chaoskit_interposer_clock(int64_t nanoseconds) { seeded_clock = nanoseconds; }

static int seeded_time(struct timespec *now) {
    if (!seeded_clock)
        return 0;
    int64_t at = __atomic_add_fetch(&seeded_clock, 1000 * 1000, __ATOMIC_RELAXED);
    *now = (struct timespec){at / 1000000000, at % 1000000000};
    return 1;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*next)(clockid_t, struct timespec *); /* called too often to be looked up each time */
    if ((clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) && seeded_time(now))
        return 0;
    if (!next)
        next = NEXT(clock_gettime);
    return next(clock, now);
}
EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    static int (*next)(struct timeval *restrict, void *restrict);
    struct timespec seeded;
    if (seeded_time(&seeded)) {
        *now = (struct timeval){seeded.tv_sec, seeded.tv_nsec / 1000};
        return 0;
    }
    if (!next)
        next = NEXT(gettimeofday);
    return next(now, zone);
}
EXPORT time_t time(time_t *place) {
    struct timespec now;
    if (!seeded_time(&now) && clock_gettime(CLOCK_REALTIME_COARSE, &now))
        return -1;
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}

/* SIGSYS is reserved while there is a filter: a thread that blocks it dies of the first trap. */
static long change_mask(int how, const sigset_t *set, sigset_t *old) {
    /* 32 and 33 belong to the C library, which takes them out as well. */
    uint64_t ours = SIGNAL_BIT(32) | SIGNAL_BIT(33) | (filter_installed ? SIGNAL_BIT(SIGSYS) : 0);
    uint64_t wanted = 0, was = 0;
    if (set)
        memcpy(&wanted, set, sizeof wanted);
    if (how != SIG_UNBLOCK)
        wanted &= ~ours;
    long result = RAW(SYS_rt_sigprocmask, how, set ? (long)&wanted : 0, (long)&was, sizeof was);
    if (result == 0 && old) {
        sigemptyset(old);
        memcpy(old, &was, sizeof was);
    }
    return result;
}
EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old) {
    return (int)with_errno(change_mask(how, set, old));
}
EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
    return (int)-change_mask(how, set, old);
}
EXPORT int sigaction(int signal, const struct sigaction *action, struct sigaction *old) {
    static struct sigaction wished; /* the handler that the target believes it installed for SIGSYS */
    struct sigaction changed;
    if (!filter_installed)
        return NEXT(sigaction)(signal, action, old);
    if (signal == SIGSYS) {
        if (old)
            *old = wished;
        if (action)
            wished = *action;
        return 0;
    }
    if (action) {
        changed = *action;
        sigdelset(&changed.sa_mask, SIGSYS);
        action = &changed;
    }
    return NEXT(sigaction)(signal, action, old);
}

/* Only reported here: a program's operations are recorded once the library is loaded into it. */
EXPORT int execve(const char *path, char *const argv[], char *const environment[]) {
    if (observing())
        report_if_not_covered(AT_FDCWD, path, 0);
    COVER_ENVIRONMENT(environment);
    return (int)with_errno(RAW(SYS_execve, (long)path, (long)argv, (long)environment));
}
EXPORT int execveat(int directory, const char *path, char *const argv[], char *const environment[],
                    int flags) {
    if (observing())
        report_if_not_covered(directory, path, flags);
    COVER_ENVIRONMENT(environment);
    return (int)with_errno(
        RAW(SYS_execveat, directory, (long)path, (long)argv, (long)environment, flags));
}
EXPORT int fexecve(int fd, char *const argv[], char *const environment[]) {
    return execveat(fd, "", argv, environment, AT_EMPTY_PATH);
}
EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
EXPORT int execvpe(const char *file, char *const argv[], char *const environment[]) {
    if (observing())
        report_if_not_covered_in_path(file, getenv("PATH"));
    COVER_ENVIRONMENT(environment);
    return NEXT(execvpe)(file, argv, environment);
}
EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

/* The arguments up to NULL, as an array in the frame that makes the call. */
#define ARGUMENT_ARRAY(array, first, rest)                       \
    va_list rest, counting;                                      \
    size_t count = 1;                                            \
    va_start(counting, first);                                   \
    while (va_arg(counting, char *))                             \
        count++;                                                 \
    va_end(counting);                                            \
    char **array = alloca((count + 1) * sizeof *array);          \
    va_start(rest, first);                                       \
    array[0] = (char *)(first);                                  \
    for (size_t i = 1; i <= count; i++)                          \
        array[i] = va_arg(rest, char *)

EXPORT int execl(const char *path, const char *argument, ...) {
    ARGUMENT_ARRAY(argv, argument, rest);
    va_end(rest);
    return execve(path, argv, environ);
}
EXPORT int execlp(const char *file, const char *argument, ...) {
    ARGUMENT_ARRAY(argv, argument, rest);
    va_end(rest);
    return execvpe(file, argv, environ);
}
EXPORT int execle(const char *path, const char *argument, ...) {
    ARGUMENT_ARRAY(argv, argument, rest);
    char *const *environment = va_arg(rest, char *const *);
    va_end(rest);
    return execve(path, argv, environment);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                       const posix_spawnattr_t *attributes, char *const argv[],
                       char *const environment[]) {
    if (observing())
        report_if_not_covered(AT_FDCWD, path, 0);
    COVER_ENVIRONMENT(environment);
    return NEXT(posix_spawn)(pid, path, actions, attributes, argv, environment);
}
EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                        const posix_spawnattr_t *attributes, char *const argv[],
                        char *const environment[]) {
    if (observing())
        report_if_not_covered_in_path(file, getenv("PATH"));
    COVER_ENVIRONMENT(environment);
    return NEXT(posix_spawnp)(pid, file, actions, attributes, argv, environment);
}
/*
** The child of posix_spawn runs with all signals blocked, so an open that traps there kills it.
** The file is created here, a moment early, and only opened there.
*/
EXPORT int posix_spawn_file_actions_addopen(posix_spawn_file_actions_t *actions, int fd,
                                            const char *path, int flags, mode_t mode) {
    if (filter_installed && flags & CHANGING_OPEN) {
        long made = observe((struct call){SYS_openat, {AT_FDCWD, (long)path, flags, mode}});
        if (made < 0)
            return (int)-made;
        RAW(SYS_close, made);
        flags &= ~(O_CREAT | O_TRUNC | O_EXCL);
    }
    return NEXT(posix_spawn_file_actions_addopen)(actions, fd, path, flags, mode);
}

/* These pass `environ` on inside the C library, so our variables must be in it before the call. */
static void cover_own_environment(void) {
    const char *preload = getenv("LD_PRELOAD");
    if (!observing())
        return;
    setenv("CHAOSKIT_CONTROL", control_path, 1);
    if (!preload || !strstr(preload, library_path))
        setenv("LD_PRELOAD", library_path, 1);
}
EXPORT int system(const char *command) {
    cover_own_environment();
    return NEXT(system)(command);
}
EXPORT FILE *popen(const char *command, const char *type) {
    cover_own_environment();
    return NEXT(popen)(command, type);
}
