# Makes system calls, and prints of each its name and its error, 0 for none. The numbers are those of
# arch/x86/entry/syscalls/syscall_64.tbl, written apart from the filter's list. None of them would do harm: they are about a file
# in the folder that is named, or about nothing, and signals are of number 0.
use strict;
my $folder = $ARGV[0];
my $file = "$folder/file";
open(my $opened, '<', $file) or die;
my $fd = fileno($opened);
my ($own, $parent) = ($$ + 0, getppid() + 0);
my $none = 0x7ffffff;
my $info = pack('iii x116', 0, 0, -1);
my $owner = pack('ii', 1, $parent);
my $number = pack('i x124', 0);
my $key = 0x7badcafe;
my $here = -100;
my @calls = (
    ['chmod', 90, $file, 0600], ['fchmod', 91, $fd, 0600], ['fchmodat', 268, $here, $file, 0600],
    ['fchmodat2', 452, $here, $file, 0600, 0], ['chown', 92, $file, -1, -1], ['fchown', 93, $fd, -1, -1],
    ['lchown', 94, $file, -1, -1], ['fchownat', 260, $here, $file, -1, -1, 0],
    ['setxattr', 188, $file, 'user.a', 'b', 1, 0], ['lsetxattr', 189, $file, 'user.a', 'b', 1, 0],
    ['fsetxattr', 190, $fd, 'user.a', 'b', 1, 0], ['setxattrat', 463, $here, $file, 0, 'user.a', 0, 0],
    ['removexattr', 197, $file, 'user.a'], ['lremovexattr', 198, $file, 'user.a'],
    ['fremovexattr', 199, $fd, 'user.a'], ['removexattrat', 466, $here, $file, 0, 'user.a'],
    ['file_setattr', 469, $here, $file, 0, 0, 0],
    ['utime', 132, $file, 0], ['utimes', 235, $file, 0], ['futimesat', 261, $here, $file, 0],
    ['utimensat', 280, $here, $file, 0, 0], ['mknod', 133, "$folder/fifo", 010600, 0],
    ['mknodat', 259, $here, "$folder/other", 010600, 0], ['truncate', 76, $file, 0],
    ['creat', 85, $file, 0600], ['open O_TRUNC', 2, $file, 01000], ['openat O_TRUNC', 257, $here, $file, 01000],
    ['openat2', 437, $here, $file, 0, 0],
    ['socket', 41, 1, 2, 0], ['socketpair', 53, 1, 2, 0, $number], ['connect', 42, $none, $number, 2],
    ['sendto', 44, $none, 'x', 1, 0, $number, 2], ['sendmmsg', 307, $none, 0, 0, 0],
    ['kill', 62, $parent, 0], ['tkill', 200, $parent, 0], ['tgkill', 234, $parent, $parent, 0],
    ['rt_sigqueueinfo', 129, $parent, 0, $info], ['rt_tgsigqueueinfo', 297, $parent, $parent, 0, $info],
    ['pidfd_open', 434, $parent, 0], ['pidfd_send_signal', 424, $none, 0, 0, 0], ['process_mrelease', 448, $none, 0],
    ['F_SETOWN', 72, $fd, 8, $parent], ['F_SETSIG', 72, $fd, 10, 10], ['F_SETOWN_EX', 72, $fd, 15, $owner],
    ['FIOSETOWN', 16, $fd, 0x8901, $number], ['SIOCSPGRP', 16, $fd, 0x8902, $number],
    ['TIOCSTI', 16, $fd, 0x5412, $number], ['TIOCLINUX', 16, $fd, 0x541c, $number],
    ['PR_SET_PDEATHSIG', 157, 1, 0, 0, 0, 0], ['PR_SCHED_CORE', 157, 62, 99, 0, 0, 0],
    ['shmget', 29, $key, 4096, 0], ['shmat', 30, $none, 0, 0], ['shmctl', 31, $none, 2, $number],
    ['semget', 64, $key, 1, 0], ['semop', 65, $none, $number, 1], ['semtimedop', 220, $none, $number, 1, 0],
    ['semctl', 66, $none, 0, 14, $number], ['msgget', 68, $key, 0], ['msgsnd', 69, $none, $info, 0, 0],
    ['msgrcv', 70, $none, $info, 0, 0, 0], ['msgctl', 71, $none, 2, $number],
    ['mq_open', 240, 'pvticket-none', 0, 0, 0], ['mq_unlink', 241, 'pvticket-none'],
    ['prlimit64', 302, $parent, 7, 0, $number],
    ['inotify_init', 253], ['inotify_init1', 294, 0],
    # What has to go on.
    ['own tgkill', 234, $own, $own, 0], ['own fcntl', 72, $fd, 3], ['own openat', 257, $here, $file, 0],
    ['own prctl', 157, 15, 'name'],
);
for my $call (@calls) {
    my ($name, $number, @arguments) = @$call;
    $! = 0;
    my $result = syscall($number, @arguments);
    print "$name: ", ($result == -1 ? $! + 0 : 0), "\n";
}
