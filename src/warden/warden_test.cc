// The whole warden against the kernel: a process of its own, real namespaces, real jails. Only root can run these.
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/random.h"
#include "base/unix_socket.h"
#include "confine/calls.h"
#include "confine/filter.h"
#include "confine/landlock.h"
#include "net/namespace.h"
#include "warden/testdata/running_warden.h"

namespace space::warden {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kQemu = "/usr/bin/qemu-system-x86_64";

std::string status_of(pid_t pid, const std::string& field) {
  const std::string text = read_file(fmt::format("/proc/{}/status", pid), 65536).value_or("");
  const auto at = text.find("\n" + field + ":\t");
  if (at == std::string::npos) return "";
  const auto start = at + field.size() + 3;
  return text.substr(start, text.find('\n', start) - start);
}

bool ended(const wire::VmmProcess& process, int limit_ms = 10'000) {
  pollfd p{process.pidfd.get(), POLLIN, 0};
  return ::poll(&p, 1, limit_ms) == 1;
}

class WardenTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root: starts a warden and jailed processes";
    warden_.emplace();
  }
  void TearDown() override {
    if (!warden_) return;
    if (warden_->pid() > 0) {
      auto listing = warden_->client().list();
      ASSERT_TRUE(listing) << describe(listing.error());
      for (const auto& vm : *listing) EXPECT_TRUE(warden_->client().destroy(vm.vm));
    }
    EXPECT_THAT(warden_->leftovers(), IsEmpty());
    warden_.reset();
  }
  wire::WardenClient& client() { return warden_->client(); }

  std::optional<RunningWarden> warden_;
};

TEST_F(WardenTest, SaysWhatItHas) {
  auto info = client().hello();
  ASSERT_TRUE(info) << describe(info.error());
  EXPECT_EQ(info->vmm_build.size(), 64U);
  EXPECT_EQ(info->vmm_version, "1.2.3");
  EXPECT_THAT(info->limits, ::testing::AnyOf("cgroup-v1", "cgroup-v2"));
  EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(warden_->config().data_dir) / "vmm" / info->vmm_build / "usr/bin/vmm"));
}

TEST_F(WardenTest, AVmmSeesNothingButItsOwn) {
  const std::string vm = warden_->new_vm();
  const Fd data(::memfd_create("data", 0));
  ASSERT_EQ(::pwrite(data.get(), "hello", 5, 0), 5);
  ASSERT_EQ(::fchmod(data.get(), 0666), 0);
  const int fds[] = {data.get(), data.get()};
  auto process = warden_->launch(vm, {"report", "", "two words"}, {64ULL << 20, 100, 16, 1 << 20}, fds);
  ASSERT_TRUE(process) << describe(process.error());
  const Lines seen = warden_->read_log(*process);
  ASSERT_TRUE(seen.contains("end")) << warden_->raw_log();

  EXPECT_EQ(seen.at("pid"), "1");
  const auto uid = std::stoul(seen.at("uid"));
  EXPECT_GE(uid, warden_->config().uid_base + 1000);
  EXPECT_EQ(seen.at("groups"), "0");
  EXPECT_EQ(seen.at("environment"), "0");
  EXPECT_EQ(seen.at("host"), "vmm");
  EXPECT_EQ(seen.at("argv2"), "");
  EXPECT_EQ(seen.at("argv3"), "two words");
  EXPECT_FALSE(seen.contains("argv4"));
  auto words = [&](const std::string& name) {
    std::istringstream text(seen.at(name));
    return std::set<std::string>(std::istream_iterator<std::string>(text), {});
  };
  EXPECT_EQ(words("root"), (std::set<std::string>{"dev", "proc", "usr"}));
  EXPECT_EQ(words("dev"), (std::set<std::string>{"null", "urandom"}));
  EXPECT_EQ(words("fds"), (std::set<std::string>{"0", "1", "2", "3", "4", "5"})) << "5 is the listing's own";
  EXPECT_EQ(seen.at("fd3"), "hello");
  EXPECT_EQ(seen.at("fd4"), "hello");
  EXPECT_EQ(seen.at("reopen"), "done");
  EXPECT_EQ(seen.at("processes"), "1");
  EXPECT_EQ(seen.at("limit_core"), "0");
  EXPECT_EQ(seen.at("limit_files"), "1024");
  EXPECT_EQ(seen.at("limit_fsize"), "1048576");
  EXPECT_EQ(seen.at("limit_nproc"), "16");
  EXPECT_EQ(seen.at("dumpable"), "0");

  // And from outside.
  const std::string id = std::to_string(uid), ids = fmt::format("{0}\t{0}\t{0}\t{0}", id);
  EXPECT_EQ(status_of(process->pid, "Uid"), ids);
  EXPECT_EQ(status_of(process->pid, "Gid"), ids);
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_EQ(status_of(process->pid, set), "0000000000000000") << set;
  EXPECT_EQ(status_of(process->pid, "NoNewPrivs"), "1");
  EXPECT_EQ(status_of(process->pid, "Seccomp"), "2");
  struct stat st {};
  ASSERT_EQ(::stat(fmt::format("/proc/{}/mem", process->pid).c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 0U) << "/proc/PID of an undumpable process belongs to root (proc(5))";
  for (const char* kind : {"mnt", "pid", "ipc", "uts", "net", "cgroup"}) {
    const auto of = [&](const std::string& who) { return std::filesystem::read_symlink(fmt::format("/proc/{}/ns/{}", who, kind)); };
    EXPECT_NE(of(std::to_string(process->pid)), of("self")) << kind;
  }
  const Fd inside = *open_file(fmt::format("/proc/{}/ns/net", process->pid), O_RDONLY);
  auto empty = net::in_namespace(inside, []() -> Result<> {
    std::vector<std::string> names;
    auto* all = ::if_nameindex();
    for (auto* i = all; i && i->if_index != 0; ++i) names.emplace_back(i->if_name);
    ::if_freenameindex(all);
    EXPECT_THAT(names, ElementsAre("lo"));
    return {};
  });
  EXPECT_TRUE(empty);
}

// A program of ours in place of the VMM, that does its worst.
class WorstVmm {
 public:
  explicit WorstVmm(bool without_filter)
      : warden_(SPACE_JAIL_PROBE, 1, without_filter), folder_(*TempDir::make("/tmp", "space-warden-worst-")) {
    file_ = *open_file(folder_.path() / "for reading", O_RDONLY | O_CREAT, 0600);
    EXPECT_EQ(::fchmod(file_.get(), 0666), 0);
    device_ = *open_file("/dev/null", O_RDONLY);
  }
  Lines attack() { return run({"attack"}).first; }
  // What it wrote, and whether it has ended by itself.
  std::pair<Lines, bool> run(const std::vector<std::string>& argv) {
    const int fds[] = {file_.get(), device_.get()};
    const std::string vm = warden_.new_vm();
    auto process = warden_.launch(vm, argv, {64ULL << 20, 100, 16, 0}, fds);
    if (!process) {  // it can have ended before the warden looked at it
      EXPECT_EQ(process.error().code, "vmm_ended") << describe(process.error());
      return {Lines(), true};
    }
    Lines lines = warden_.read_log(*process);
    const bool gone = ended(*process, lines.contains("end") ? 0 : 10'000);
    EXPECT_TRUE(warden_.client().destroy(vm));
    return {std::move(lines), gone};
  }

 private:
  RunningWarden warden_;
  TempDir folder_;
  Fd file_, device_;
};

TEST(WorstVmm, WhatMustFailFromInsideFails) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: starts a warden and jailed processes";
  Lines tried = WorstVmm(false).attack();
  ASSERT_TRUE(tried.contains("end"));
  tried.erase("end");
  EXPECT_EQ(tried.size(), 48U);
  for (const auto& [what, result] : tried) EXPECT_NE(result, "done") << what;
  EXPECT_EQ(tried["host_file"], "ENOENT");
  EXPECT_EQ(tried["host_root"], "ENOENT");
  EXPECT_EQ(tried["kernel_settings"], "ENOENT");
  EXPECT_EQ(tried["read_program"], "EACCES");
  // What the jail alone would allow: only the filter and Landlock stand before it.
  Lines allowed = WorstVmm(true).attack();
  for (const char* name : {"fork", "fork_by_clone", "unix", "inet", "netlink", "memory_file", "lower_priority", "lower_limit", "dumpable",
                           "dumpable_upper_half", "listener"}) {
    EXPECT_EQ(tried[name], "ENOSYS") << name;
    EXPECT_EQ(allowed[name], "done") << name << ", the control";
  }
  if (confine::landlock_version() == 0) GTEST_SKIP() << "this kernel has no Landlock";
  for (const char* name : {"reopen_for_writing", "reopen_device"}) {
    EXPECT_EQ(tried[name], "EACCES") << name;
    EXPECT_EQ(allowed[name], "done") << name << ", the control";
  }
}

TEST(WorstVmm, WhatOnlyAnAttackerCallsIsItsEnd) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: starts a warden and jailed processes";
  WorstVmm confined(false), free(true);
  int tried = 0;
  for (const char* name : confine::kAttacks) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number < 0) continue;  // of another architecture
    ++tried;
    const std::vector<std::string> call = {"deadly", std::to_string(number)};
    const auto [lines, gone] = confined.run(call);
    EXPECT_TRUE(gone && !lines.contains("alive")) << name;
    EXPECT_TRUE(free.run(call).first.contains("alive")) << name << ", the control";
  }
  EXPECT_GT(tried, 50);
}

TEST_F(WardenTest, AFileOverTheLimitIsAnErrorForTheVmmAndNotItsEnd) {
  const Fd file(::memfd_create("disk", 0));
  const int fd = file.get();
  auto process = warden_->launch(warden_->new_vm(), {"write", "1000000"}, {64ULL << 20, 100, 16, 1'000'000}, std::span(&fd, 1));
  ASSERT_TRUE(process) << describe(process.error());
  const Lines tried = warden_->read_log(*process);
  ASSERT_TRUE(tried.contains("end"));
  EXPECT_EQ(tried.at("within"), "done");
  EXPECT_EQ(tried.at("beyond"), "EFBIG");
}

TEST_F(WardenTest, MemoryProcessAndCpuLimitsBite) {
  const std::string hog = warden_->new_vm();
  auto process = warden_->launch(hog, {"hog", "400"}, {64ULL << 20, 100, 16, 0});
  ASSERT_TRUE(process) << describe(process.error());
  EXPECT_FALSE(warden_->read_log(*process).contains("end"));
  ASSERT_TRUE(ended(*process)) << "killed by its own limit";
  EXPECT_EQ(client().adopt(hog).error().code, "vmm_ended");

  // First by its rlimit, then by its cgroup alone, which is lowered before it goes on.
  Lines lines;
  for (const std::uint32_t tasks : {16U, 8U}) {
    const Fd go(::eventfd(0, EFD_CLOEXEC));
    const int fd = go.get();
    const std::string bomb = warden_->new_vm();
    process = warden_->launch(bomb, {"threads", "200"}, {64ULL << 20, 100, 16, 0}, std::span(&fd, 1));
    ASSERT_TRUE(process) << describe(process.error());
    ASSERT_TRUE(client().set_limits(bomb, {64ULL << 20, 100, tasks, 0}));
    const std::uint64_t one = 1;
    ASSERT_EQ(::write(fd, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    lines = warden_->read_log(*process);
    EXPECT_EQ(lines["made"], std::to_string(tasks - 1));
    EXPECT_EQ(lines["then"], "EAGAIN");
  }

  const std::string spinner = warden_->new_vm();
  process = warden_->launch(spinner, {"spin", "1000"}, {64ULL << 20, 20, 16, 0});
  ASSERT_TRUE(process) << describe(process.error());
  lines = warden_->read_log(*process);
  EXPECT_GT(std::stol(lines["cpu_ms"]), 20);
  EXPECT_LT(std::stol(lines["cpu_ms"]), 400);
  EXPECT_TRUE(client().set_limits(spinner, {128ULL << 20, 50, 20, 0}));
  EXPECT_TRUE(client().set_limits(spinner, {32ULL << 20, 10, 10, 0}));
  EXPECT_EQ(client().set_limits(spinner, {1, 10, 10, 0}).error().code, "bad_limits");
  EXPECT_TRUE(client().set_cpu_weight(spinner, 100));
  EXPECT_EQ(client().set_cpu_weight(spinner, 0).error().code, "bad_weight");
  EXPECT_EQ(client().set_cpu_weight(spinner, 10'001).error().code, "bad_weight");
  EXPECT_EQ(client().set_limits(hog, {32ULL << 20, 10, 10, 0}).error().code, "vmm_ended");
}

TEST_F(WardenTest, AKilledVmmEndsAndNobodyWaitsForIt) {
  const std::string vm = warden_->new_vm();
  auto process = warden_->launch(vm, {"spin", "60000"});
  ASSERT_TRUE(process) << describe(process.error());
  EXPECT_TRUE(client().kill(vm));
  EXPECT_TRUE(ended(*process));
  EXPECT_TRUE(client().kill(vm)) << "again is fine";
  EXPECT_TRUE(client().kill(new_id())) << "and of what never was";
  auto listing = client().list();
  ASSERT_TRUE(listing);
  EXPECT_TRUE(std::any_of(listing->begin(), listing->end(), [&](const auto& entry) { return entry.vm == vm && !entry.alive; }))
      << "its rest is the destroy's";
  EXPECT_TRUE(client().destroy(vm));
}

TEST_F(WardenTest, AProgramThatCannotStartIsAnErrorAndLeavesNothing) {
  const std::string vm = warden_->new_vm();
  EXPECT_EQ(client().start_vmm(vm, std::string(64, '0'), {64ULL << 20, 100, 16, 0}, {}, {}, *open_file("/dev/null", O_WRONLY)).error().code,
            "vmm_build_unknown");
  auto info = client().hello();
  ASSERT_TRUE(info);
  // A build whose program is no program.
  const auto builds = std::filesystem::path(warden_->config().data_dir) / "vmm";
  const std::string broken(64, 'b');
  for (const char* folder : {"proc", "dev", "usr/bin"}) ASSERT_TRUE(make_directories(builds / broken / folder, 0755));
  ASSERT_TRUE(write_file_durable(builds / broken / "usr/bin/vmm", "no program", 0711));
  auto started = client().start_vmm(vm, broken, {64ULL << 20, 100, 16, 0}, {}, {}, *open_file("/dev/null", O_WRONLY));
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, "jail_failed");
  EXPECT_THAT(started.error().message, HasSubstr("run the program"));
  EXPECT_TRUE(warden_->launch(vm, {"report"})) << "the id is still good";
  EXPECT_EQ(warden_->launch(vm, {"report"}).error().code, "vm_exists");
}

TEST_F(WardenTest, HandsOutANetworkAndSocketsInIt) {
  const std::string vm = warden_->new_vm();
  EXPECT_EQ(client().guest_sockets(vm, 1).error().code, "vm_unknown");
  auto tap = client().make_net(vm);
  ASSERT_TRUE(tap) << describe(tap.error());
  EXPECT_EQ(client().make_net(vm).error().code, "vm_exists");
  auto egress = client().egress_sockets(vm);
  ASSERT_TRUE(egress) << describe(egress.error());
  EXPECT_EQ(egress->size(), 3U);
  EXPECT_EQ(client().egress_sockets(vm).error().code, "address_in_use");
  egress->clear();
  EXPECT_TRUE(client().egress_sockets(vm));
  auto sockets = client().guest_sockets(vm, 3);
  ASSERT_TRUE(sockets);
  EXPECT_EQ(sockets->size(), 3U);
  EXPECT_EQ(::fcntl(sockets->front().get(), F_GETFL) & O_NONBLOCK, O_NONBLOCK);
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(443);
  out.sin_addr.s_addr = htonl(0x01010101);
  EXPECT_EQ(::connect(sockets->front().get(), reinterpret_cast<sockaddr*>(&out), sizeof out), -1);
  EXPECT_EQ(errno, ENETUNREACH) << "no route out";
  EXPECT_EQ(client().refusals(vm).value(), wire::Refusals{});
  EXPECT_EQ(client().refusals(new_id()).error().code, "vm_unknown");
  EXPECT_TRUE(client().destroy(vm));
  EXPECT_TRUE(client().destroy(vm)) << "again is fine";
  EXPECT_TRUE(client().destroy(new_id())) << "and of what never was";
}

TEST_F(WardenTest, OpensTheMemoryOfAVmm) {
  const std::string vm = warden_->new_vm();
  auto process = warden_->launch(vm, {"report"});
  ASSERT_TRUE(process) << describe(process.error());
  (void)warden_->read_log(*process);
  auto memory = client().open_memory(vm);
  ASSERT_TRUE(memory) << describe(memory.error());
  // The first page of the program: an ELF header, read, written and read again.
  const std::string maps = read_fd(memory->maps, 65536).value_or("");
  EXPECT_EQ(maps, read_file(fmt::format("/proc/{}/maps", process->pid), 65536).value_or("?"));
  const auto address = static_cast<off_t>(std::stoull(maps, nullptr, 16));
  char magic[4] = {};
  EXPECT_EQ(::pread(memory->memory.get(), magic, 4, address), 4);
  EXPECT_EQ(std::string_view(magic + 1, 3), "ELF");
  EXPECT_EQ(::pwrite(memory->memory.get(), "X", 1, address), 1);
  EXPECT_EQ(::pread(memory->memory.get(), magic, 1, address), 1);
  EXPECT_EQ(magic[0], 'X');
  std::uint64_t entry = 0;
  EXPECT_EQ(::pread(memory->pagemap.get(), &entry, 8, address / 4096 * 8), 8);
  EXPECT_NE(entry >> 62, 0U) << "present";
  EXPECT_EQ(entry & ((1ULL << 55) - 1), 0U) << "where in the machine's memory is nobody's business";
  EXPECT_TRUE(client().destroy(vm));
  EXPECT_EQ(client().open_memory(vm).error().code, "vm_unknown");
}

TEST_F(WardenTest, FreezesOnlyRegularFiles) {
  auto folder = TempDir::make("/tmp", "space-warden-freeze-");
  ASSERT_TRUE(folder);
  const Fd file = *open_file(folder->path() / "layer", O_RDWR | O_CREAT);
  const auto frozen = client().freeze_file(file, true);
  if (!frozen && frozen.error().code == "freeze_unsupported") {
    EXPECT_EQ(::write(file.get(), "x", 1), 1) << "and is as it was";
    GTEST_SKIP() << "/tmp is on a filesystem without immutable files";
  }
  ASSERT_TRUE(frozen) << describe(frozen.error());
  EXPECT_EQ(::write(file.get(), "x", 1), -1) << "also by a descriptor that was open before";
  EXPECT_EQ(::ftruncate(file.get(), 0), -1);
  ASSERT_TRUE(client().freeze_file(file, false));
  EXPECT_EQ(::write(file.get(), "x", 1), 1);
  EXPECT_EQ(client().freeze_file(*open_file(folder->path(), O_RDONLY), true).error().code, "not_your_file");
  EXPECT_EQ(client().freeze_file(*open_file(folder->path() / "layer", O_RDONLY), true).error().code, "bad_descriptor");
  EXPECT_EQ(client().freeze_file(*open_file("/dev/null", O_RDONLY), true).error().code, "not_your_file");
}

TEST_F(WardenTest, AnswersNodeAndRootAloneAndOthersOnlyForTheirOwnFiles) {
  auto folder = TempDir::make("/tmp", "space-warden-peer-");
  ASSERT_TRUE(folder);
  ASSERT_EQ(::chmod(folder->path().c_str(), 0755), 0);
  const Fd roots = *open_file(folder->path() / "roots", O_RDWR | O_CREAT, 0644);
  auto as = [&](uid_t uid, auto&& work) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      // The socket's folder belongs to this test alone; a server's run directory is open to all.
      if (::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0) ::_exit(99);
      ::_exit(work());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
  };
  ASSERT_EQ(::chmod(std::filesystem::path(warden_->config().run_dir).parent_path().c_str(), 0755), 0);
  const std::string path = warden_->socket().string();
  const uid_t node = warden_->config().uid_base + 2;
  EXPECT_EQ(as(node,
               [&] {
                 auto client = wire::WardenClient::connect(path);
                 if (!client || !(*client)->hello()) return 1;
                 auto frozen = (*client)->freeze_file(roots, true);
                 return !frozen && frozen.error().code == "not_your_file" ? 0 : 2;
               }),
            0);
  // Another uid: the socket's mode keeps it out; and where that does not, the warden itself does.
  EXPECT_EQ(as(node + 1, [&] { return wire::WardenClient::connect(path) ? 1 : 0; }), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(as(node + 1,
               [&] {
                 auto client = wire::WardenClient::connect(path);
                 return !client || !(*client)->hello() ? 0 : 1;
               }),
            0);
}

TEST_F(WardenTest, GarbageEndsOnlyTheConnectionItCameOn) {
  for (const std::string& bytes : {std::string("x"), std::string(100'000, 'y'), std::string(sizeof(int), '\0')}) {
    Fd raw = *connect_unix(warden_->socket(), SOCK_SEQPACKET);
    (void)send_packet(raw, std::as_bytes(std::span(bytes)));
    EXPECT_FALSE(receive_packet(raw, 65536));
  }
  EXPECT_TRUE(client().hello());
}

TEST_F(WardenTest, VmmsSurviveItsCrashAndAreFoundAgain) {
  const std::string vm = warden_->new_vm(), bare = warden_->new_vm(), dead = warden_->new_vm();
  ASSERT_TRUE(client().make_net(vm));
  ASSERT_TRUE(client().make_net(bare));
  auto process = warden_->launch(vm, {"report"});
  auto dying = warden_->launch(dead, {"report"});
  ASSERT_TRUE(process && dying);
  warden_->kill();
  EXPECT_FALSE(ended(*process, 100));
  ::kill(dying->pid, SIGKILL);
  EXPECT_TRUE(ended(*dying));
  warden_->start();
  auto listing = client().list();
  ASSERT_TRUE(listing) << describe(listing.error());
  std::map<std::string, bool> alive;
  for (const auto& entry : *listing) alive[entry.vm] = entry.alive;
  EXPECT_EQ(alive, (std::map<std::string, bool>{{vm, true}, {bare, false}, {dead, false}}));
  auto adopted = client().adopt(vm);
  ASSERT_TRUE(adopted) << describe(adopted.error());
  EXPECT_EQ(adopted->pid, process->pid);
  EXPECT_EQ(client().adopt(dead).error().code, "vmm_ended");
  EXPECT_TRUE(client().guest_sockets(vm, 1));
  EXPECT_TRUE(client().set_limits(vm, {64ULL << 20, 50, 16, 0}));
  auto another = warden_->launch(warden_->new_vm(), {"report"});
  ASSERT_TRUE(another);
  EXPECT_NE(status_of(another->pid, "Uid"), status_of(process->pid, "Uid"));
  EXPECT_TRUE(client().destroy(vm));
  EXPECT_TRUE(ended(*process, 0));
}

TEST_F(WardenTest, StopsWithoutItsVmmsAndRunsOnceARunDirectory) {
  auto process = warden_->launch(warden_->new_vm(), {"report"});
  ASSERT_TRUE(process);
  EXPECT_EQ(run(warden_->config()), 1) << "the run directory is in use";
  EXPECT_EQ(warden_->stop(), 0);
  EXPECT_FALSE(ended(*process, 50));
  warden_->start();
}

TEST_F(WardenTest, AKillAtAnyInstantLeavesNothingThatIsNotFound) {
  for (int round = 0; round < 12; ++round) {
    const std::string vm = warden_->new_vm();
    std::thread asking([&] {
      auto client = wire::WardenClient::connect(warden_->socket().string());
      if (!client) return;
      (void)(*client)->make_net(vm);
      (void)(*client)->start_vmm(vm, "", {64ULL << 20, 100, 16, 0}, {"report"}, {}, *open_file("/dev/null", O_WRONLY));
      (void)(*client)->destroy(vm);
    });
    std::this_thread::sleep_for(std::chrono::microseconds(700 * round));
    warden_->kill();
    asking.join();
    warden_->start();
    auto listing = client().list();
    ASSERT_TRUE(listing);
    for (const auto& entry : *listing) EXPECT_TRUE(client().destroy(entry.vm));
    EXPECT_THAT(warden_->leftovers(), IsEmpty()) << "round " << round;
  }
}

TEST_F(WardenTest, ManyAtOnceLeaveNothing) {
  constexpr int kThreads = 4, kEach = 8;
  std::vector<std::string> vms;
  for (int i = 0; i < kThreads * kEach; ++i) vms.push_back(warden_->new_vm());
  std::vector<std::thread> threads;
  std::atomic<int> done = 0;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      auto client = *wire::WardenClient::connect(warden_->socket().string());
      const Fd null = *open_file("/dev/null", O_WRONLY);
      for (int i = 0; i < kEach; ++i) {
        const std::string& vm = vms[static_cast<std::size_t>(t * kEach + i)];
        auto tap = client->make_net(vm);
        auto process = client->start_vmm(vm, "", {64ULL << 20, 100, 16, 0}, {"report"}, {}, null);
        if (tap && process && client->destroy(vm)) ++done;
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(done, kThreads * kEach);
  EXPECT_TRUE(client().list()->empty());
}

TEST_F(WardenTest, ASecondServerOnTheHostGetsOtherUids) {
  RunningWarden other;
  auto mine = warden_->launch(warden_->new_vm(), {"report"});
  auto its = other.launch(other.new_vm(), {"report"});
  ASSERT_TRUE(mine && its);
  EXPECT_NE(status_of(mine->pid, "Uid"), status_of(its->pid, "Uid"));
}

// The real VMM: waiting, as node keeps it in the pool of spawned ones.
TEST(WardenWithQemu, RunsInTheJailWithItsOwnFilterOnTop) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root: starts a jailed QEMU";
  if (!std::filesystem::exists(kQemu)) GTEST_SKIP() << kQemu << " is not installed";
  RunningWarden warden(kQemu);
  auto info = warden.client().hello();
  ASSERT_TRUE(info) << describe(info.error());
  EXPECT_THAT(info->vmm_version, ::testing::MatchesRegex("[0-9]+\\.[0-9.]+"));

  auto folder = TempDir::make("/tmp", "space-warden-qmp-");
  ASSERT_TRUE(folder);
  const Fd qmp = *listen_unix(folder->path() / "qmp", SOCK_STREAM, 0600);
  const Fd memory(::memfd_create("base", 0));
  ASSERT_EQ(::ftruncate(memory.get(), 64 << 20), 0);
  ASSERT_EQ(::fchmod(memory.get(), 0666), 0);
  const std::string vm = warden.new_vm();
  auto tap = warden.client().make_net(vm);
  ASSERT_TRUE(tap) << describe(tap.error());
  const int fds[] = {qmp.get(), memory.get(), tap->get()};
  auto process = warden.launch(vm,
                               {"-nodefaults",
                                "-no-user-config",
                                "-display",
                                "none",
                                "-M",
                                "microvm,memory-backend=m,x-option-roms=off,pit=off,pic=off,rtc=on",
                                "-accel",
                                info->kvm ? "kvm" : "tcg,thread=multi",
                                "-cpu",
                                "max",
                                "-m",
                                "64M",
                                "-object",
                                "memory-backend-file,id=m,size=64M,mem-path=/proc/self/fd/4,share=off",
                                "-netdev",
                                "tap,id=n,fd=5",
                                "-device",
                                "virtio-net-device,netdev=n",
                                "-S",
                                "-chardev",
                                "socket,id=q,fd=3,server=on,wait=off",
                                "-mon",
                                "chardev=q,mode=control",
                                "-sandbox",
                                "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"},
                               {512ULL << 20, 100, 64, 1 << 30}, fds);
  ASSERT_TRUE(process) << describe(process.error());
  const Fd control = *connect_unix(folder->path() / "qmp", SOCK_STREAM);
  pollfd waiting{control.get(), POLLIN, 0};
  char greeting[256] = {};
  if (::poll(&waiting, 1, 10'000) == 1) (void)!::read(control.get(), greeting, sizeof greeting - 1);
  EXPECT_THAT(greeting, HasSubstr("\"QMP\"")) << (warden.read_log(*process), warden.raw_log());

  if (process->userfault) {  // Linux 6.1
    auto handed = receive_packet(process->userfault, 16);
    ASSERT_TRUE(handed) << describe(handed.error());
    EXPECT_EQ(handed->bytes, "u");
    ASSERT_EQ(handed->fds.size(), 1U);
    EXPECT_EQ(std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", handed->fds[0].get())), "anon_inode:[userfaultfd]");
    EXPECT_FALSE(receive_packet(process->userfault, 16)) << "the VMM has closed its end";
  }
  for (const std::string& fd : list_directory(fmt::format("/proc/{}/fd", process->pid)).value_or(std::vector<std::string>{})) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(fmt::format("/proc/{}/fd/{}", process->pid, fd), gone).string();
    EXPECT_THAT(target, Not(HasSubstr("userfault"))) << fd;
    EXPECT_LT(std::stoi(fd), 1000) << target;
  }
  EXPECT_EQ(read_file(fmt::format("/proc/{}/environ", process->pid), 4096).value_or("?"), "");

  EXPECT_EQ(status_of(process->pid, "CapEff"), "0000000000000000");
  EXPECT_EQ(status_of(process->pid, "NoNewPrivs"), "1");
  EXPECT_EQ(status_of(process->pid, "Seccomp"), "2");
  EXPECT_EQ(status_of(process->pid, "Seccomp_filters"), "3");
  struct stat st {};
  ASSERT_EQ(::stat(fmt::format("/proc/{}/mem", process->pid).c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 0U) << "undumpable";
  EXPECT_TRUE(warden.client().open_memory(vm));
  EXPECT_TRUE(warden.client().destroy(vm));
  EXPECT_TRUE(ended(*process, 0));
  EXPECT_EQ(warden.stop(), 0);
  EXPECT_THAT(warden.leftovers(), IsEmpty());
}

}  // namespace
}  // namespace space::warden
