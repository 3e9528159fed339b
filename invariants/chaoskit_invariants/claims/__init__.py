"""What a certificate examines: claims about stores (`stores`) and about agents (`agents`)."""
