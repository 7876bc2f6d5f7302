/* Tries to break out of the sandbox, each way in a process of its own.
 *
 *     break_out HOST_PID HOST_FILE ABSTRACT_SOCKET [NAME]
 *
 * Says one line for each attempt: its name, then "held" and why it failed, or "BROKE" and what it got. Nothing here does
 * harm where it succeeds: files are opened and not written, calls that would change the machine get arguments that the
 * kernel refuses once it has let the caller in.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static pid_t host_pid;
static const char *host_file, *abstract_name;

static void answer(const char *word, const char *format, ...)
{
    char text[400];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    printf("%s %s\n", word, text);
    fflush(stdout);
    _exit(0);
}

#define BROKE(...) answer("BROKE", __VA_ARGS__)
#define HELD(...) answer("held", __VA_ARGS__)

/* An attempt that is one call: refused with any error. */
static void refused(long result, const char *what)
{
    if (result >= 0)
        BROKE("%s", what);
    HELD("%s", strerrorname_np(errno));
}

/* As before, where the arguments are nonsense: only the errors of one who is not let in count. */
static void not_let_in(long result, const char *what)
{
    if (result >= 0 || (errno != EPERM && errno != ENOSYS && errno != EAFNOSUPPORT))
        BROKE("%s: %s", what, result >= 0 ? "done" : strerrorname_np(errno));
    HELD("%s", strerrorname_np(errno));
}

/* ---- files of the kernel ------------------------------------------------------------------------------------------ */

static char found[300];

/* Whether a file below a folder can be opened for writing; links are not followed, nor other file systems entered. */
static int writable_below(const char *path, int depth)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    char name[1024];

    if (!folder)
        return 0;
    while ((entry = readdir(folder)) && !found[0])
    {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        if (entry->d_type == DT_DIR && depth)
            writable_below(name, depth - 1);
        else if (entry->d_type == DT_REG)
        {
            int file = open(name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (file >= 0)
                snprintf(found, sizeof(found), "%.250s can be written", name);
            if (file >= 0)
                close(file);
        }
    }
    closedir(folder);
    return found[0];
}

static void core_pattern(void) { refused(open("/proc/sys/kernel/core_pattern", O_WRONLY), "open for writing"); }
static void kernel_settings(void)
{
    if (writable_below("/proc/sys", 12))
        BROKE("%s", found);
    HELD("all of /proc/sys");
}
static void sysrq(void) { refused(open("/proc/sysrq-trigger", O_WRONLY), "open for writing"); }
static void rest_of_proc(void)
{
    if (writable_below("/proc", 3))
        BROKE("%s", found);
    HELD("all of /proc");
}
static void sys(void)
{
    if (!access("/sys/kernel", F_OK) || !access("/sys/fs", F_OK) || !access("/sys/class", F_OK))
        BROKE("/sys is there");
    if (writable_below("/sys", 12))
        BROKE("%s", found);
    HELD("all of /sys");
}
static void kernel_memory(void)
{
    static const char *files[] = {"/proc/kcore", "/dev/mem", "/dev/kmem", "/dev/port", "/proc/kpageflags", "/dev/kmsg"};

    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++)
        if (open(files[i], O_RDONLY) >= 0)
            BROKE("%s can be read", files[i]);
    HELD("all of them");
}
static void devices(void)
{
    static const char *known = " null zero full random urandom tty ptmx pts shm fd stdin stdout stderr core console ";
    DIR *folder = opendir("/dev");
    struct dirent *entry;
    char name[300];

    while (folder && (entry = readdir(folder)))
    {
        snprintf(name, sizeof(name), " %s ", entry->d_name);
        if (entry->d_name[0] != '.' && !strstr(known, name))
            BROKE("/dev/%s is there", entry->d_name);
    }
    refused(open("/dev/x", O_WRONLY | O_CREAT, 0600), "a file in /dev");
}

/* ---- mounts ------------------------------------------------------------------------------------------------------- */

static void mount_tmpfs(void) { refused(mount("x", "/tmp", "tmpfs", 0, NULL), "a mount"); }
static void mount_proc(void) { refused(mount("proc", "/tmp", "proc", 0, NULL), "a mount"); }
static void bind_mount(void) { refused(mount("/", "/tmp", NULL, MS_BIND | MS_REC, NULL), "a mount"); }
static void remount_root(void) { refused(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), "/ can be written"); }
static void remount_proc(void) { refused(mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND, NULL), "/proc can be written"); }
static void unmount_settings(void) { refused(umount2("/proc/sys", MNT_DETACH), "/proc/sys is what it was below"); }
static void unmount_models(void) { refused(umount2("/exchange/models", MNT_DETACH), "unmounted"); }
static void new_mounts(void)
{
    struct { uint64_t set, clear, propagation, userns; } attributes = {0};

    if (syscall(SYS_fsopen, "tmpfs", 0) >= 0)
        BROKE("fsopen");
    if (syscall(SYS_open_tree, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */) >= 0)
        BROKE("open_tree");
    if (syscall(SYS_fspick, AT_FDCWD, "/", 0) >= 0)
        BROKE("fspick");
    if (syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/home", 0) >= 0)
        BROKE("move_mount");
    refused(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &attributes, sizeof(attributes)), "mount_setattr");
}
static void pivot_root_away(void) { refused(syscall(SYS_pivot_root, "/tmp", "/tmp"), "pivot_root"); }
static void chroot_away(void)
{
    mkdir("/tmp/below", 0700);
    refused(chroot("/tmp/below"), "chroot, and out of it by ..");
}
static void parent_of_root(void)
{
    struct stat root, above;

    if (stat("/", &root) || stat("/../../..", &above) || root.st_ino != above.st_ino || root.st_dev != above.st_dev)
        BROKE("/.. is not /");
    HELD("/.. is /");
}
static void read_only_places(void)
{
    static const char *places[] = {"/", "/usr", "/etc", "/usr/bin", "/exchange/models", "/exchange/feeds", "/native", "/dev"};
    char name[100];

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
    {
        snprintf(name, sizeof(name), "%s/broken-out", places[i]);
        if (open(name, O_WRONLY | O_CREAT, 0600) >= 0 || !mkdir(name, 0700) || !symlink("/", name))
            BROKE("%s can be written", places[i]);
        if (!chmod(places[i], 0777) || !rmdir(places[i]))
            BROKE("%s can be changed", places[i]);
    }
    HELD("%s", strerrorname_np(errno));
}
static void names_of_mounts(void)
{
    if (!rename("/exchange/models", "/exchange/other") || !rename("/exchange/feeds", "/exchange/other"))
        BROKE("a mount was renamed");
    refused(rename("/exchange", "/tmp/other"), "the exchange folder was renamed");
}
static void link_out_of_a_mount(void)
{
    if (!link("/exchange/models/model.txt", "/exchange/linked"))
        BROKE("a hard link to a file that is only to be read");
    if (!linkat(AT_FDCWD, "/proc/self/exe", AT_FDCWD, "/exchange/linked", AT_SYMLINK_FOLLOW))
        BROKE("a hard link to a program");
    HELD("%s", strerrorname_np(errno));
}
static void file_of_the_host(void) { refused(open(host_file, O_RDONLY), "a file of the host"); }
static void log_of_the_worker(void) { refused(open("/exchange/worker.log", O_WRONLY), "the log"); }

/* ---- namespaces --------------------------------------------------------------------------------------------------- */

static void user_namespace(void) { refused(unshare(CLONE_NEWUSER), "a user namespace"); }
static void mount_namespace(void) { refused(unshare(CLONE_NEWNS), "a mount namespace"); }
static void net_namespace(void) { refused(unshare(CLONE_NEWNET), "a net namespace"); }
static void clone_into_user_namespace(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0);

    if (!pid)
        _exit(0);
    refused(pid, "a user namespace");
}
static void clone3_into_user_namespace(void)
{
    struct { uint64_t flags, pidfd, child, parent, signal, stack, size, tls; } arguments = {0};
    long pid;

    arguments.flags = CLONE_NEWUSER;
    arguments.signal = SIGCHLD;
    if (!(pid = syscall(SYS_clone3, &arguments, sizeof(arguments))))
        _exit(0);
    refused(pid, "a user namespace");
}
static void enter_namespaces(void)
{
    static const char *kinds[] = {"user", "mnt", "net", "pid", "ipc", "uts"};
    char name[100];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
    {
        snprintf(name, sizeof(name), "/proc/1/ns/%s", kinds[i]);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        if (file >= 0 && !setns(file, 0))
            BROKE("setns %s", kinds[i]);
    }
    if (!setns((int)syscall(SYS_pidfd_open, 1, 0), CLONE_NEWNS))
        BROKE("setns by a pidfd");
    HELD("%s", strerrorname_np(errno));
}

/* ---- other processes ---------------------------------------------------------------------------------------------- */

static void root_of_the_first(void)
{
    struct stat own, other;

    if (stat("/proc/1/root", &other))
        HELD("%s", strerrorname_np(errno));
    if (stat("/", &own) || own.st_ino != other.st_ino || own.st_dev != other.st_dev)
        BROKE("/proc/1/root is not /");
    HELD("/proc/1/root is /");
}
static void folder_of_the_first(void)
{
    int folder = open("/proc/1/cwd", O_RDONLY | O_DIRECTORY);

    if (folder < 0)
        HELD("%s", strerrorname_np(errno));
    refused(faccessat(folder, host_file + 1, F_OK, 0), "the host's files");
}
/* Programs that run here, by the file that they were started from: it must not be one of the host's mounts. */
static void programs_of_others(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    char name[300];

    while (folder && (entry = readdir(folder)))
    {
        snprintf(name, sizeof(name), "/proc/%s/exe", entry->d_name);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        if (file < 0)
            continue;
        struct stat now;
        if (!fstat(file, &now) && (!fchmod(file, now.st_mode & 07777) || errno != EROFS))
            BROKE("the mode of %s can be changed", name);
        if (open(name, O_WRONLY) >= 0)
            BROKE("%s can be written", name);
    }
    HELD("all of them");
}
static void descriptors_of_the_first(void)
{
    DIR *folder = opendir("/proc/1/fd");
    struct dirent *entry;

    while (folder && (entry = readdir(folder)))
        if (entry->d_name[0] != '.' && atoi(entry->d_name) > 2 && atoi(entry->d_name) != dirfd(folder))
            BROKE("/proc/1/fd/%s", entry->d_name);
    HELD(folder ? "three" : "none to be seen");
}
static void inherited_descriptors(void)
{
    for (int file = 3; file < 256; file++)
        if (fcntl(file, F_GETFD) >= 0)
            BROKE("descriptor %d", file);
    HELD("three");
}
static void memory_of_the_first(void) { refused(open("/proc/1/mem", O_RDWR), "/proc/1/mem"); }
static void trace(void) { not_let_in(ptrace(PTRACE_ATTACH, 1, NULL, NULL), "ptrace"); }
static void trace_own_child(void)
{
    pid_t child = fork();

    if (!child)
    {
        pause();
        _exit(0);
    }
    long result = ptrace(PTRACE_SEIZE, child, NULL, NULL);
    int error = errno;
    kill(child, SIGKILL);
    errno = error;
    not_let_in(result, "ptrace");
}
static void read_memory(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};

    not_let_in(process_vm_readv(1, &here, 1, &there, 1, 0), "process_vm_readv");
}
static void take_descriptor(void) { not_let_in(syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, 1, 0), 0, 0), "pidfd_getfd"); }
static void compare(void) { not_let_in(syscall(SYS_kcmp, 1, getpid(), 0, 0, 0), "kcmp"); }
static void signal_to_the_host(void) { refused(kill(host_pid, 0), "the process of the test"); }
static void pidfd_of_the_host(void) { refused(syscall(SYS_pidfd_open, host_pid, 0), "the process of the test"); }
static void processes_of_the_host(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *entry;
    int count = 0;

    while (folder && (entry = readdir(folder)))
        count += entry->d_name[0] >= '1' && entry->d_name[0] <= '9';
    if (count > 8)
        BROKE("%d processes", count);
    HELD("%d processes", count);
}

/* ---- rights ------------------------------------------------------------------------------------------------------- */

static void be_root(void)
{
    if (!setuid(0) || !setresuid(0, 0, 0) || !setgid(0) || !getuid() || !geteuid() || !getgid() || !getegid())
        BROKE("root");
    HELD("%s", strerrorname_np(errno));
}
static void join_groups(void)
{
    gid_t groups[64] = {0};

    if (getgroups(64, groups) > 0 && groups[0] == 0)
        BROKE("root's group");
    groups[0] = 0;
    refused(setgroups(1, groups), "root's group");
}
static void capabilities(void)
{
    char line[200], name[40];
    unsigned long long value;
    FILE *status = fopen("/proc/self/status", "r");

    while (status && fgets(line, sizeof(line), status))
    {
        if (sscanf(line, "%39[^:]: %llx", name, &value) != 2)
            continue;
        if ((!strcmp(name, "CapPrm") || !strcmp(name, "CapEff") || !strcmp(name, "CapAmb")) && value)
            BROKE("%s", line);
        if (!strcmp(name, "NoNewPrivs") && value != 1)
            BROKE("programs may gain rights");
        if (!strcmp(name, "Seccomp") && value != 2)
            BROKE("no filter");
    }
    HELD("none");
}
static void raise_capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}};

    for (int capability = 0; capability < 41; capability++)
        if (!prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0))
            BROKE("capability %d is ambient", capability);
    refused(syscall(SYS_capset, &header, data), "capabilities");
}
static void set_user_bit(void)
{
    /* Rights that a file gives are nothing here, whoever owns it: it is on a mount without them. */
    if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || !prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0))
        BROKE("programs may gain rights");
    HELD("no new privileges");
}

/* ---- devices, terminals, network ---------------------------------------------------------------------------------- */

static void device_file(void)
{
    static const char *places[] = {"/tmp/device", "/exchange/device", "/shaders/device", "/home/device"};

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (!mknod(places[i], S_IFCHR | 0600, makedev(1, 1)) || !mknod(places[i], S_IFBLK | 0600, makedev(254, 0)))
            BROKE("%s", places[i]);
    HELD("%s", strerrorname_np(errno));
}
static void fifo(void) { refused(mkfifo("/exchange/fifo", 0600), "a FIFO in the exchange folder"); }
static int terminal(void)
{
    int file = posix_openpt(O_RDWR | O_NOCTTY);

    grantpt(file);
    unlockpt(file);
    return file;
}
static void controlling_terminal(void) { refused(open("/dev/tty", O_RDWR), "a terminal"); }
static void type_into_terminal(void)
{
    static const int files[] = {0, 1, 2};

    for (size_t i = 0; i < 3; i++)
        if (!ioctl(files[i], TIOCSTI, "x"))
            BROKE("descriptor %d", files[i]);
    not_let_in(ioctl(terminal(), TIOCSTI, "x"), "TIOCSTI");
}
static void type_with_high_bits(void) { not_let_in(syscall(SYS_ioctl, terminal(), 0x100005412UL, "x"), "TIOCSTI"); }
static void paste_into_console(void) { not_let_in(ioctl(terminal(), 0x541C /* TIOCLINUX */, "\3"), "TIOCLINUX"); }
static void line_discipline(void)
{
    int hdlc = 13;

    not_let_in(ioctl(terminal(), TIOCSETD, &hdlc), "TIOCSETD");
}
static void abstract_socket(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int file = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(abstract_name));

    strncpy(address.sun_path + 1, abstract_name, sizeof(address.sun_path) - 2);
    refused(connect(file, (struct sockaddr *)&address, length), "a socket of the host");
}
static void sockets(void)
{
    for (int family = 2; family < 46; family++)
        for (int kind = 1; kind < 6; kind++)
            if (socket(family, kind, 0) >= 0 || errno != EAFNOSUPPORT)
                BROKE("family %d, kind %d: %s", family, kind, strerrorname_np(errno));
    HELD("all but AF_UNIX");
}

/* ---- handles, keys, parts of the kernel --------------------------------------------------------------------------- */

static void file_by_handle(void)
{
    /* The root folder of most file systems is number 2. */
    struct { struct file_handle head; uint32_t ids[2]; } handle = {.ids = {2, 0}};

    handle.head.handle_bytes = 8;
    handle.head.handle_type = 1;
    not_let_in(open_by_handle_at(open("/exchange", O_RDONLY), &handle.head, O_RDONLY), "open_by_handle_at");
}
static void handle_of_file(void)
{
    struct { struct file_handle head; char data[128]; } handle;
    int mount;

    handle.head.handle_bytes = 128;
    not_let_in(name_to_handle_at(AT_FDCWD, "/exchange", &handle.head, &mount, 0), "name_to_handle_at");
}
static void session_keyring(void) { not_let_in(syscall(SYS_keyctl, 0, -3, 0), "the session's keyring"); }
static void user_keyring(void) { not_let_in(syscall(SYS_keyctl, 0, -4, 0), "the user's keyring"); }
static void add_key(void) { not_let_in(syscall(SYS_add_key, "user", "x", "x", 1, -2), "add_key"); }
static void request_key(void) { not_let_in(syscall(SYS_request_key, "user", "x", NULL, 0), "request_key"); }
static void load_bpf(void) { not_let_in(syscall(SYS_bpf, 0, NULL, 0), "bpf"); }
static void perf(void) { not_let_in(syscall(SYS_perf_event_open, NULL, 0, -1, -1, 0), "perf_event_open"); }
static void fault_handler(void) { not_let_in(syscall(SYS_userfaultfd, 1), "userfaultfd"); }
static void io_uring(void) { not_let_in(syscall(SYS_io_uring_setup, 1, NULL), "io_uring_setup"); }
static void watch_files(void) { not_let_in(syscall(SYS_fanotify_init, 0xFFFF, 0), "fanotify_init"); }
static void load_module(void)
{
    syscall(SYS_init_module, NULL, 0, "");
    if (errno != EPERM)
        BROKE("init_module: %s", strerrorname_np(errno));
    not_let_in(syscall(SYS_finit_module, -1, "", 0), "finit_module");
}
static void load_kernel(void) { not_let_in(syscall(SYS_kexec_load, 0, 17, NULL, 1 << 30), "kexec_load"); }
static void machine(void)
{
    struct { const char *name; long result; } calls[] = {
        {"reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0x12345, NULL)},
    };
    static const struct { const char *name; long number; long arguments[3]; } more[] = {
        {"swapon", SYS_swapon, {0}},           {"swapoff", SYS_swapoff, {0}},
        {"acct", SYS_acct, {1}},               {"quotactl", SYS_quotactl, {-1}},
        {"settimeofday", SYS_settimeofday, {1}}, {"clock_settime", SYS_clock_settime, {99}},
        {"adjtimex", SYS_adjtimex, {0}},       {"sethostname", SYS_sethostname, {1, -1}},
        {"setdomainname", SYS_setdomainname, {1, -1}}, {"syslog", SYS_syslog, {99}},
        {"iopl", SYS_iopl, {9}},               {"ioperm", SYS_ioperm, {-1, -1}},
        {"delete_module", SYS_delete_module, {1}}, {"modify_ldt", SYS_modify_ldt, {99}},
    };

    if (calls[0].result >= 0 || errno != EPERM)
        BROKE("reboot: %s", strerrorname_np(errno));
    for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
        if (syscall(more[i].number, more[i].arguments[0], more[i].arguments[1], more[i].arguments[2]) >= 0 || errno != EPERM)
            BROKE("%s: %s", more[i].name, strerrorname_np(errno));
    HELD("EPERM");
}
static void personality(void)
{
    if (syscall(SYS_personality, 0xffffffffUL) < 0)
        BROKE("the question for it is refused: %s", strerrorname_np(errno));
    not_let_in(syscall(SYS_personality, 0x0400000UL /* READ_IMPLIES_EXEC */), "personality");
}
static void unknown_calls(void)
{
    for (long number = 463; number < 1024; number++)
        if (syscall(number, 0, 0, 0, 0, 0, 0) >= 0 || errno != ENOSYS)
            BROKE("call %ld: %s", number, strerrorname_np(errno));
    HELD("ENOSYS");
}
static void calls_of_x32(void)
{
    if (syscall(0x40000000L | SYS_getpid) >= 0 || errno != ENOSYS)
        BROKE("getpid: %s", strerrorname_np(errno));
    HELD("ENOSYS");
}
static void calls_of_32_bits(void)
{
    int status;
    pid_t child = fork();

    if (!child)
    {
        long result;
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
        _exit(result > 0 ? 77 : 78); /* getpid; a kernel without these calls gives SIGSEGV */
    }
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status))
        BROKE("exit code %d", WEXITSTATUS(status));
    HELD("%s", sigabbrev_np(WTERMSIG(status)));
}

/* ---- limits ------------------------------------------------------------------------------------------------------- */

static void fork_bomb(void)
{
    int count = 0;
    pid_t child;

    setpgid(0, 0);
    while (count < 5000 && (child = fork()) >= 0)
    {
        if (!child)
        {
            pause();
            _exit(0);
        }
        count++;
    }
    int error = errno;
    if (count == 5000)
        answer("BROKE", "%d processes", count); /* they end with the sandbox */
    HELD("%s after %d", strerrorname_np(error), count);
}
static void fill_memory_folders(void)
{
    static const char *places[] = {"/tmp/filled", "/home/filled", "/dev/shm/filled"};
    static char block[1 << 20];

    memset(block, 1, sizeof(block));
    for (size_t i = 0; i < 3; i++)
    {
        int file = open(places[i], O_WRONLY | O_CREAT, 0600), blocks = 0;
        if (file < 0)
            BROKE("%s: %s", places[i], strerrorname_np(errno));
        while (blocks < 64 && write(file, block, sizeof(block)) == (ssize_t)sizeof(block))
            blocks++;
        if (blocks == 64)
            BROKE("%s takes 64 MiB", places[i]);
    }
    HELD("%s", strerrorname_np(errno));
}
static void raise_limits(void)
{
    static const int kinds[] = {RLIMIT_CORE, RLIMIT_NOFILE, RLIMIT_FSIZE, RLIMIT_NPROC};
    struct rlimit limit;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
    {
        if (getrlimit(kinds[i], &limit) || limit.rlim_max == RLIM_INFINITY)
            BROKE("no limit %d", kinds[i]);
        limit.rlim_max++;
        if (!setrlimit(kinds[i], &limit))
            BROKE("limit %d can be raised", kinds[i]);
    }
    HELD("%s", strerrorname_np(errno));
}
static void dump_core(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_CORE, &limit) || limit.rlim_max)
        BROKE("a core of %llu bytes", (unsigned long long)limit.rlim_max);
    HELD("0 bytes");
}
static void endless_file(void)
{
    int file = open("/exchange/endless", O_WRONLY | O_CREAT, 0600);

    signal(SIGXFSZ, SIG_IGN);
    if (file < 0)
        BROKE("the exchange folder cannot be written: %s", strerrorname_np(errno));
    refused(ftruncate(file, 1LL << 50), "a file of 2^50 bytes");
}
static void environment(void)
{
    if (getenv("DMLPREP_TEST_SECRET"))
        BROKE("a variable of the host's");
    HELD("none of the host's");
}

/* ------------------------------------------------------------------------------------------------------------------- */

#define ATTEMPT(name) {#name, name}
static const struct
{
    const char *name;
    void (*try)(void);
} attempts[] = {
    ATTEMPT(core_pattern), ATTEMPT(kernel_settings), ATTEMPT(sysrq), ATTEMPT(rest_of_proc), ATTEMPT(sys),
    ATTEMPT(kernel_memory), ATTEMPT(devices),
    ATTEMPT(mount_tmpfs), ATTEMPT(mount_proc), ATTEMPT(bind_mount), ATTEMPT(remount_root), ATTEMPT(remount_proc),
    ATTEMPT(unmount_settings), ATTEMPT(unmount_models), ATTEMPT(new_mounts), ATTEMPT(pivot_root_away),
    ATTEMPT(chroot_away), ATTEMPT(parent_of_root), ATTEMPT(read_only_places), ATTEMPT(names_of_mounts),
    ATTEMPT(link_out_of_a_mount), ATTEMPT(file_of_the_host), ATTEMPT(log_of_the_worker),
    ATTEMPT(user_namespace), ATTEMPT(mount_namespace), ATTEMPT(net_namespace), ATTEMPT(clone_into_user_namespace),
    ATTEMPT(clone3_into_user_namespace), ATTEMPT(enter_namespaces),
    ATTEMPT(root_of_the_first), ATTEMPT(folder_of_the_first), ATTEMPT(programs_of_others),
    ATTEMPT(descriptors_of_the_first), ATTEMPT(inherited_descriptors), ATTEMPT(memory_of_the_first), ATTEMPT(trace),
    ATTEMPT(trace_own_child), ATTEMPT(read_memory), ATTEMPT(take_descriptor), ATTEMPT(compare),
    ATTEMPT(signal_to_the_host), ATTEMPT(pidfd_of_the_host), ATTEMPT(processes_of_the_host),
    ATTEMPT(be_root), ATTEMPT(join_groups), ATTEMPT(capabilities), ATTEMPT(raise_capabilities), ATTEMPT(set_user_bit),
    ATTEMPT(device_file), ATTEMPT(fifo), ATTEMPT(controlling_terminal), ATTEMPT(type_into_terminal),
    ATTEMPT(type_with_high_bits), ATTEMPT(paste_into_console), ATTEMPT(line_discipline), ATTEMPT(abstract_socket),
    ATTEMPT(sockets),
    ATTEMPT(file_by_handle), ATTEMPT(handle_of_file), ATTEMPT(session_keyring), ATTEMPT(user_keyring), ATTEMPT(add_key),
    ATTEMPT(request_key), ATTEMPT(load_bpf), ATTEMPT(perf), ATTEMPT(fault_handler), ATTEMPT(io_uring),
    ATTEMPT(watch_files), ATTEMPT(load_module), ATTEMPT(load_kernel), ATTEMPT(machine), ATTEMPT(personality),
    ATTEMPT(unknown_calls), ATTEMPT(calls_of_x32), ATTEMPT(calls_of_32_bits),
    ATTEMPT(fill_memory_folders), ATTEMPT(raise_limits), ATTEMPT(dump_core), ATTEMPT(endless_file),
    ATTEMPT(environment),
    ATTEMPT(fork_bomb), /* the last one: what it started ends with the sandbox */
};

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    host_pid = atoi(argv[1]);
    host_file = argv[2];
    abstract_name = argv[3];
    for (size_t i = 0; i < sizeof(attempts) / sizeof(*attempts); i++)
    {
        int status;

        if (argc > 4 && strcmp(argv[4], attempts[i].name))
            continue;
        printf("%s ", attempts[i].name);
        fflush(stdout);
        pid_t child = fork();
        if (child < 0)
        {
            printf("BROKE cannot be tried: %s\n", strerrorname_np(errno));
            continue;
        }
        if (!child)
        {
            alarm(20);
            attempts[i].try();
            _exit(0);
        }
        waitpid(child, &status, 0);
        if (WIFSIGNALED(status))
            printf("BROKE cannot be told: ended by SIG%s\n", sigabbrev_np(WTERMSIG(status)));
    }
    return 0;
}
