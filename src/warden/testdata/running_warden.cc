#include "warden/testdata/running_warden.h"

#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sstream>
#include <sys/mount.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"
#include "warden/cgroup.h"

namespace space::warden {
namespace fs = std::filesystem;
using std::chrono::milliseconds;

RunningWarden::RunningWarden(const std::string& vmm, unsigned ready_namespaces, bool without_filter)
    : folder_(*TempDir::make("/tmp", "space-warden-test-")) {
  config_.run_dir = (folder_.path() / "run").string();
  config_.data_dir = (folder_.path() / "data").string();
  // A base of this test process alone, far from the default of servers on this machine.
  config_.uid_base = 1'000'000'000U + static_cast<uid_t>(::getpid() % 10'000) * 100'000U;
  config_.vmm_binary = vmm;
  config_.ready_namespaces = ready_namespaces;
  config_.without_filter = without_filter;
  start();
}

RunningWarden::~RunningWarden() {
  if (client_ && pid_ > 0)
    for (const std::string& vm : vms_) (void)client_->destroy(vm);
  if (pid_ > 0) (void)stop();
  // What follows has an effect only when a test failed.
  for (pid_t pid : vmm_pids_)
    if (fs::exists(fmt::format("/proc/{}", pid)) && read_file(fmt::format("/proc/{}/comm", pid), 64).value_or("") == "vmm\n")
      ::kill(pid, SIGKILL);
  std::this_thread::sleep_for(milliseconds(vmm_pids_.empty() ? 0 : 20));
  for (const std::string& vm : vms_) {
    ::umount2((folder_.path() / "run/warden" / vm / "net").c_str(), MNT_DETACH);
    (void)Cgroups::detect().remove(vm);
  }
}

void RunningWarden::start() {
  pid_ = ::fork();
  ASSERT_GE(pid_, 0);
  if (pid_ == 0) {
    log::configure("warden", std::getenv("SPACE_TEST_LOG") ? log::Level::info : log::Level::error);
    ::_exit(run(config_));
  }
  for (int i = 0; i < 2000; ++i) {
    if (auto client = wire::WardenClient::connect(socket().string())) {
      client_ = std::move(*client);
      return;
    }
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) break;
    std::this_thread::sleep_for(milliseconds(5));
  }
  pid_ = 0;
  FAIL() << "the warden did not start";
}

void RunningWarden::kill() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
  client_.reset();
}

int RunningWarden::stop() {
  ::kill(pid_, SIGTERM);
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = 0;
  client_.reset();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 256;
}

std::string RunningWarden::new_vm() { return *vms_.insert(new_id()).first; }

Result<wire::VmmProcess> RunningWarden::launch(const std::string& vm, const std::vector<std::string>& argv, const wire::VmLimits& limits,
                                               std::span<const int> fds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno(errno, "pipe");
  log_ = Fd(ends[0]);
  log_text_.clear();
  const Fd writer(ends[1]);
  auto process = client_->start_vmm(vm, "", limits, argv, fds, writer);
  if (process) vmm_pids_.insert(process->pid);
  return process;
}

Lines RunningWarden::read_log(const wire::VmmProcess& process) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  char buffer[4096];
  while (log_text_.find("end=\n") == std::string::npos && std::chrono::steady_clock::now() < end) {
    pollfd fds[] = {{log_.get(), POLLIN, 0}, {process.pidfd.get(), POLLIN, 0}};
    ::poll(fds, 2, 1000);
    if (fds[0].revents & POLLIN) {
      const ssize_t n = ::read(log_.get(), buffer, sizeof buffer);
      if (n > 0) log_text_.append(buffer, static_cast<std::size_t>(n));
    } else if (fds[0].revents != 0 || fds[1].revents != 0) {
      break;
    }
  }
  Lines lines;
  std::istringstream text(log_text_);
  for (std::string line; std::getline(text, line);)
    if (const auto at = line.find('='); at != std::string::npos) lines[line.substr(0, at)] = line.substr(at + 1);
  return lines;
}

std::vector<std::string> RunningWarden::leftovers() const {
  std::vector<std::string> left;
  const std::string mounts = read_file("/proc/self/mountinfo", 16 << 20).value_or("");
  if (mounts.find(folder_.path().string()) != std::string::npos) left.push_back("a mount");
  for (const std::string& vm : vms_) {
    if (fs::exists(folder_.path() / "run/warden" / vm)) left.push_back("the folder of " + vm);
    std::istringstream lines(mounts);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(" - cgroup") == std::string::npos) continue;
      std::istringstream words(line);
      std::string skip, point;
      words >> skip >> skip >> skip >> skip >> point;
      if (fs::exists(fs::path(point) / "space" / vm)) left.push_back("a cgroup in " + point);
    }
  }
  for (const std::string& name : list_directory("/proc").value_or(std::vector<std::string>())) {
    if (name[0] < '0' || name[0] > '9') continue;
    const std::string status = read_file(fmt::format("/proc/{}/status", name), 65536).value_or("");
    const auto at = status.find("\nUid:\t");
    // A zombie is init's to reap, since its own warden was killed.
    if (at == std::string::npos || status.find("\nState:\tZ") != std::string::npos) continue;
    const auto uid = std::strtoul(status.c_str() + at + 6, nullptr, 10);
    if (uid >= config_.uid_base && uid < config_.uid_base + 100'000U) left.push_back("process " + name);
  }
  return left;
}

}  // namespace space::warden
