// Stands in for a VMM in the tests of the jail: a static program that says what it sees, and tries what must fail.
// Each line of output is "name=value"; for an attempt the value is the name of the error, or "done" when it worked.
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <initializer_list>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/if_tun.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

namespace {

void tried(const char* name, long result) { std::printf("%s=%s\n", name, result >= 0 ? "done" : strerrorname_np(errno)); }

void list(const char* name, const char* path) {
  std::printf("%s=", name);
  if (DIR* folder = ::opendir(path)) {
    while (const dirent* entry = ::readdir(folder))
      if (entry->d_name[0] != '.') std::printf("%s ", entry->d_name);
    ::closedir(folder);
  } else {
    std::printf("%s", strerrorname_np(errno));
  }
  std::printf("\n");
}

void numeric(const char* name, const char* path) {
  int count = 0;
  if (DIR* folder = ::opendir(path)) {
    while (const dirent* entry = ::readdir(folder)) count += entry->d_name[0] >= '0' && entry->d_name[0] <= '9';
    ::closedir(folder);
  }
  std::printf("%s=%d\n", name, count);
}

void report(int argc, char** argv) {
  int variables = 0;
  for (char** v = environ; *v; ++v) ++variables;
  utsname system{};
  ::uname(&system);
  std::printf("pid=%d\nuid=%u\ngroups=%d\nenvironment=%d\nhost=%s\n", ::getpid(), ::getuid(), ::getgroups(0, nullptr), variables,
              system.nodename);
  for (int i = 0; i < argc; ++i) std::printf("argv%d=%s\n", i, argv[i]);
  list("root", "/");
  list("dev", "/dev");
  list("fds", "/proc/self/fd");
  numeric("processes", "/proc");
  for (int fd = 3; fd < 5; ++fd) {
    char text[64] = {};
    if (::pread(fd, text, sizeof text - 1, 0) > 0) std::printf("fd%d=%s\n", fd, text);
  }
  char buffer[PATH_MAX] = {};
  tried("reopen", ::open("/proc/self/fd/3", O_RDONLY));
  std::printf("exe=%zd\n", ::readlink("/proc/self/exe", buffer, sizeof buffer));
  const struct {
    const char* name;
    __rlimit_resource what;
  } limits[] = {{"core", RLIMIT_CORE}, {"files", RLIMIT_NOFILE}, {"fsize", RLIMIT_FSIZE}, {"nproc", RLIMIT_NPROC}};
  for (const auto& l : limits) {
    rlimit value{};
    ::getrlimit(l.what, &value);
    std::printf("limit_%s=%llu\n", l.name, static_cast<unsigned long long>(value.rlim_max));
  }
  std::printf("dumpable=%d\n", ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
}

// What fails, one way or another.
void attack() {
  tried("host_file", ::open("/etc/passwd", O_RDONLY));
  tried("host_root", ::open("/proc/1/root/etc/passwd", O_RDONLY));
  tried("dot_dot", ::open("/../../../../etc/passwd", O_RDONLY));
  tried("kernel_settings", ::open("/proc/sys/kernel/hostname", O_RDONLY));
  tried("kernel_symbols", ::open("/proc/kallsyms", O_RDONLY));
  tried("sysfs", ::open("/sys/kernel", O_RDONLY));
  tried("read_program", ::open("/usr/bin/vmm", O_RDONLY));
  tried("write_program", ::open("/usr/bin/vmm", O_WRONLY));
  tried("chmod_program", ::chmod("/usr/bin/vmm", 0777));
  tried("new_file", ::open("/x", O_CREAT | O_WRONLY, 0600));
  tried("new_device_file", ::open("/dev/x", O_CREAT | O_WRONLY, 0600));
  tried("new_memory_file", ::open("/dev/shm/x", O_CREAT | O_WRONLY, 0600));
  tried("unlink", ::unlink("/usr/bin/vmm"));
  tried("tun", ::open("/dev/net/tun", O_RDWR));
  tried("reopen_for_writing", ::open("/proc/self/fd/3", O_RDWR));  // its mode would allow it
  tried("reopen_device", ::open("/proc/self/fd/4", O_RDWR));
  for (const bool by_clone : {false, true}) {
    const long child = by_clone ? ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) : ::fork();
    if (child == 0) ::_exit(0);
    tried(by_clone ? "fork_by_clone" : "fork", child);
  }
  tried("clone_user_namespace", ::syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  clone_args args{};
  tried("clone3", ::syscall(SYS_clone3, &args, sizeof args));
  tried("become_root", ::setresuid(0, 0, 0));
  tried("other_uid", ::setresuid(1000, 1000, 1000));
  tried("groups", ::syscall(SYS_setgroups, 0, nullptr));
  tried("signal_others", ::kill(2, 0));
  tried("signal_all", ::kill(-1, 0));
  tried("unix", ::socket(AF_UNIX, SOCK_STREAM, 0));
  tried("inet", ::socket(AF_INET, SOCK_STREAM, 0));
  tried("inet6", ::socket(AF_INET6, SOCK_DGRAM, 0));
  tried("netlink", ::socket(AF_NETLINK, SOCK_RAW, 0));
  tried("packet", ::socket(AF_PACKET, SOCK_RAW, 0));
  tried("vsock", ::socket(AF_VSOCK, SOCK_STREAM, 0));
  tried("alg", ::socket(AF_ALG, SOCK_SEQPACKET, 0));
  tried("io_uring", ::syscall(SYS_io_uring_setup, 8, nullptr));
  tried("memory_file", ::syscall(SYS_memfd_create, "x", 0));
  tried("lower_priority", ::setpriority(PRIO_PROCESS, 0, 19));  // down is always allowed, wherever the tests began
  tried("dumpable", ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0));
  constexpr long kUpper = 1L << 32;  // what a kernel that reads an int does not see
  tried("dumpable_upper_half", ::syscall(SYS_prctl, kUpper | PR_SET_DUMPABLE, 1, 0, 0, 0));
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  tried("merge_pages", ::madvise(page, 4096, MADV_MERGEABLE));
  tried("merge_pages_upper_half", ::syscall(SYS_madvise, page, 4096, kUpper | MADV_MERGEABLE));
  sock_filter pass{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
  const sock_fprog program{1, &pass};
  tried("listener", ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
  tried("tap_owner", ::ioctl(3, TUNSETOWNER, 0));
  tried("tap_persist", ::ioctl(3, TUNSETPERSIST, 1));
  tried("tap_persist_upper_half", ::syscall(SYS_ioctl, 3, kUpper | TUNSETPERSIST, 1));
  tried("interface_address", ::ioctl(3, SIOCSIFHWADDR, nullptr));
  tried("flags_of_a_file", ::ioctl(3, FS_IOC_GETFLAGS, &pass));
  rlimit more{RLIM_INFINITY, RLIM_INFINITY}, fewer{16, 16};
  tried("raise_limit", ::setrlimit(RLIMIT_NOFILE, &more));
  tried("lower_limit", ::setrlimit(RLIMIT_NOFILE, &fewer));
  tried("lower_oom", [] {
    const int fd = ::open("/proc/self/oom_score_adj", O_WRONLY);
    return fd < 0 ? -1L : static_cast<long>(::write(fd, "-1000", 5));
  }());
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 4096);
  const char* what = argc > 1 ? argv[1] : "report";
  const long amount = argc > 2 ? std::atol(argv[2]) : 0;
  if (std::strcmp(what, "--version") == 0) {
    std::puts("jail probe version 1.2.3");
    return 0;
  }
  if (std::strcmp(what, "report") == 0) report(argc, argv);
  if (std::strcmp(what, "attack") == 0) attack();
  if (std::strcmp(what, "hog") == 0)
    for (long mib = 0; mib < amount; ++mib) {
      char* piece = static_cast<char*>(std::malloc(1 << 20));
      std::memset(piece, 1, 1 << 20);
      asm volatile("" : : "r"(piece) : "memory");  // a compiler may leave out what nobody reads
      if (mib % 16 == 0) std::printf("mib=%ld\n", mib);
    }
  if (std::strcmp(what, "deadly") == 0) {  // the call of this number, in a way that changes nothing anywhere
    ::syscall(amount, -1L, -1L, -1L, -1L, -1L, -1L);
    std::puts("alive=");
  }
  if (std::strcmp(what, "threads") == 0) {
    long made = 0;
    int error = 0;
    char go[8];
    if (::read(3, go, sizeof go) < 0) std::puts("no=word to go");
    for (; made < amount; ++made) {
      pthread_t thread;
      if ((error = ::pthread_create(
               &thread, nullptr,
               [](void*) -> void* {
                 for (;;) ::pause();
               },
               nullptr)) != 0)
        break;
    }
    std::printf("made=%ld\nthen=%s\n", made, error != 0 ? strerrorname_np(error) : "");
  }
  if (std::strcmp(what, "spin") == 0) {
    timespec start{}, now{}, used{};
    ::clock_gettime(CLOCK_MONOTONIC, &start);
    do ::clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1'000'000 < amount);
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    std::printf("cpu_ms=%ld\n", used.tv_sec * 1000 + used.tv_nsec / 1'000'000);
  }
  if (std::strcmp(what, "write") == 0) {
    tried("within", ::ftruncate(3, amount));
    tried("beyond", ::ftruncate(3, amount + 1));
  }
  std::puts("end=");
  std::fflush(stdout);
  for (;;) ::pause();
}
