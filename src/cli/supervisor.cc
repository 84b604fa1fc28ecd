#include "cli/supervisor.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fmt/format.h>

#include "base/log.h"
#include "cli/exit_status.h"
#include "cli/prepare.h"
#include "cli/probe.h"
#include "template/build.h"

namespace space::cli {
namespace {

using std::chrono::steady_clock;
using Duration = std::chrono::milliseconds;

constexpr Duration kProbeEvery{50};
constexpr int kFirstTries = 5;      // with the waits between them: two seconds
constexpr Duration kGrace{15'000};  // node ends its pools in this time

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

// 0 when `time` passed without a signal.
int next_signal(Duration time) {
  const sigset_t set = watched_signals();
  const timespec wait{.tv_sec = time.count() / 1000, .tv_nsec = (time.count() % 1000) * 1'000'000};
  const int signal = ::sigtimedwait(&set, nullptr, &wait);
  return signal > 0 ? signal : 0;
}

// Who a role is from its first instruction on. api stays root only where root alone can open what it needs (a private key, a
// port below 1024), and gives it up itself before it reads a byte from a client.
uid_t uid_at_start(Role role, const ServerSettings& settings) {
  const auto listen = parse_listen(settings.listen);
  switch (role) {
    case Role::warden:
      return 0;
    case Role::egress:
      return settings.egress_uid();
    case Role::node:
      return settings.node_uid();
    case Role::api:
      return !settings.tls_key.empty() || (listen && listen->port != 0 && listen->port < 1024) ? 0 : settings.api_uid();
  }
  return settings.api_uid();
}

// The child's side of a start, between fork and exec: only calls that are safe there. Never returns.
[[noreturn]] void become(uid_t uid, pid_t parent, char* const* argv) {
  const auto give_up = [](const char* what) {
    const char* text = std::strerror(errno);
    for (const char* part : {"space: ", what, ": ", text, "\n"}) (void)!::write(STDERR_FILENO, part, std::strlen(part));
    ::_exit(kCannotServe);
  };
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // Its own group: a Ctrl-C on the terminal reaches the supervisor alone, which then stops the roles in order.
  if (::setpgid(0, 0) != 0) give_up("setpgid");
  if (uid != 0) {
    for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
      if (::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0) give_up("empty the bounding set");
    if (::setgroups(0, nullptr) != 0) give_up("setgroups");
    if (::setresgid(uid, uid, uid) != 0) give_up("setresgid");
    if (::setresuid(uid, uid, uid) != 0) give_up("setresuid");
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up("no_new_privs");
  }
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) give_up("pdeathsig");
  if (::getppid() != parent) ::_exit(kInternal);  // died before the line above
  ::execv("/proc/self/exe", argv);
  give_up("exec of our own program");
  ::_exit(kInternal);
}

std::string describe_status(int status) {
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

// Templates belong to root: this is the one moment at which a new agent can reach them. A store that other servers share is left
// to whoever keeps it.
Result<> refresh_agent(const ServerSettings& settings) {
  if (!settings.templates_dir.empty()) return {};
  const auto agent = tmpl::find_agent();
  if (agent) return tmpl::refresh_initramfs(settings.templates(), *agent);
  log::warn("agent.not_found", {{"error", agent.error()}});
  return {};
}

}  // namespace

Backoff::Duration Backoff::after_a_life_of(Duration life) {
  if (life >= Duration(30'000)) next_ = Duration(100);
  return std::exchange(next_, std::min(next_ * 2, Duration(5'000)));
}

Supervisor::Supervisor(ServerSettings settings)
    : settings_(std::move(settings)),
      processes_{RoleProcess{.role = Role::warden}, RoleProcess{.role = Role::egress}, RoleProcess{.role = Role::node},
                 RoleProcess{.role = Role::api}} {}

int Supervisor::run() {
  const auto refuse = [](const Error& error) {
    fmt::print(stderr, "space: {} ({})\n", error.message, error.code);
    if (!error.next.empty()) fmt::print(stderr, "       {}\n", error.next);
    return kCannotServe;
  };
  if (auto fine = check_host(settings_); !fine) return refuse(fine.error());
  if (auto made = make_folders(settings_); !made) return refuse(made.error());
  auto lock = lock_run_dir(settings_);
  if (!lock) return refuse(lock.error());
  if (auto fresh = refresh_agent(settings_); !fresh) return refuse(fresh.error());

  const sigset_t set = watched_signals();
  ::sigprocmask(SIG_BLOCK, &set, nullptr);
  // A VMM whose warden died is reaped here and never becomes a zombie of somebody else.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);

  Result<> failed;
  for (RoleProcess& process : processes_)
    if (failed = start(process); !failed) break;
  while (failed) {
    const int signal = next_signal(time_to_next());
    if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) break;
    if (failed = reap(); !failed) break;
    if (failed = start_due(); !failed) break;
    if (!ready_) announce_when_ready();
  }
  stop_all();
  return failed ? 0 : refuse(failed.error());
}

Result<> Supervisor::start(RoleProcess& process) {
  std::vector<std::string> words = {"space", std::string(to_string(process.role))};
  for (std::string& word : to_arguments(settings_)) words.push_back(std::move(word));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  process.start_again.reset();
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, "fork");
  if (pid == 0) become(uid_at_start(process.role, settings_), parent, argv.data());
  process.pid = pid;
  process.started = steady_clock::now();
  log::info("role.started", {{"name", to_string(process.role)}, {"pid", std::int64_t{pid}}});
  return {};
}

Result<> Supervisor::reap() {
  int status = 0;
  for (pid_t pid; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    const auto found = std::ranges::find(processes_, pid, &RoleProcess::pid);
    if (found == processes_.end()) continue;  // an orphan that fell to us
    found->pid = 0;
    const auto life = std::chrono::duration_cast<Duration>(steady_clock::now() - found->started);
    // The first tries may meet the last moments of a server that was killed: its locks and its port.
    const bool hopeless = WIFEXITED(status) && (WEXITSTATUS(status) == kCannotServe || (!ready_ && ++found->failed_starts == kFirstTries));
    if (hopeless)
      return fail(ErrorKind::unavailable, "role_failed",
                  fmt::format("{} could not start: {}", to_string(found->role), describe_status(status)), "its last lines above say why");
    const auto wait = found->backoff.after_a_life_of(life);
    found->start_again = steady_clock::now() + wait;
    log::warn("role.died",
              {{"name", to_string(found->role)}, {"how", describe_status(status)}, {"again_in_ms", std::int64_t{wait.count()}}});
  }
  return {};
}

Result<> Supervisor::start_due() {
  for (RoleProcess& process : processes_)
    if (process.start_again && *process.start_again <= steady_clock::now()) TRY_VOID(start(process));
  return {};
}

Duration Supervisor::time_to_next() const {
  Duration wait = ready_ ? Duration(3'600'000) : kProbeEvery;
  for (const RoleProcess& process : processes_)
    if (process.start_again)
      wait = std::min(wait, std::max(Duration(0), std::chrono::ceil<Duration>(*process.start_again - steady_clock::now())));
  return wait;
}

void Supervisor::announce_when_ready() {
  const auto facts = probe(settings_);
  if (!facts) return;
  ready_ = true;
  // An api that is started again comes back on the port that clients know.
  settings_.listen = facts->url.substr(facts->url.find("://") + 3);
  fmt::print("space {} is ready on {} ({}; key in {})\n", SPACE_VERSION, facts->url, facts->machine, settings_.first_key().string());
  std::fflush(stdout);
}

void Supervisor::stop_all() {
  for (auto process = processes_.rbegin(); process != processes_.rend(); ++process) end(*process, kGrace);
}

void Supervisor::end(RoleProcess& process, Duration grace) {
  if (process.pid == 0) return;
  ::kill(process.pid, SIGTERM);
  const auto limit = steady_clock::now() + grace;
  int status = 0;
  while (::waitpid(process.pid, &status, WNOHANG) == 0) {
    if (steady_clock::now() >= limit) {
      log::warn("role.killed", {{"name", to_string(process.role)}, {"after_ms", std::int64_t{grace.count()}}});
      ::kill(process.pid, SIGKILL);
      ::waitpid(process.pid, &status, 0);
      break;
    }
    next_signal(Duration(20));
  }
  process.pid = 0;
}

}  // namespace space::cli
