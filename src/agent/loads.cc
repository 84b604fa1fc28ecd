#include "agent/loads.h"

#include <algorithm>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "agent/agent.h"
#include "agent/authority.h"
#include "agent/entry.h"
#include "agent/start_command.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/log.h"

namespace space::agent {
namespace {

constexpr auto kHookLimit = std::chrono::seconds(30);
constexpr std::size_t kMostHooks = 64;

bool is_hostname(std::string_view name) {  // one label of RFC 1123, section 2.1
  const auto good = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.size() <= 63 && name.front() != '-' && name.back() != '-' && std::all_of(name.begin(), name.end(), good);
}

bool is_machine_id(std::string_view id) {  // machine-id(5)
  return id.size() == 32 && std::all_of(id.begin(), id.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

// Hooks run as root, so nobody else may have been able to write them.
bool is_trusted_program(const std::string& path) {
  struct stat st = {};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0 && (st.st_mode & 022) == 0 && (st.st_mode & 0100) != 0;
}

}  // namespace

Result<InitRequest> read_init(const json::object& object) {
  JsonReader r(object);
  r.ignore_unknown();
  InitRequest init;
  init.nonce = r.text("nonce", 8, 128);
  init.sandbox_id = r.text("sandbox_id", 0, 64, "");
  init.hostname = r.text("hostname", 1, 63);
  init.machine_id = r.text("machine_id", 32, 32);
  init.wall_ns = r.number("wall_ns", 1, std::numeric_limits<std::int64_t>::max());
  const std::string entropy = r.text("entropy", 4, 1024);
  init.env = r.text_map("env", 4096, 128 << 10);
  init.ca = r.text("ca", 0, kLongestAuthority, "");
  init.epoch = r.number("epoch", 1, std::numeric_limits<std::int64_t>::max(), 1);
  init.loaded = r.boolean("loaded", false);
  if (!is_hostname(init.hostname)) r.reject("hostname", "must be one label of lower case letters, digits and dashes");
  if (!is_machine_id(init.machine_id)) r.reject("machine_id", "must be 32 lower case hex digits");
  auto decoded = base64_decode(entropy);
  if (!decoded || decoded->size() != 64) r.reject("entropy", "must be 64 bytes in base64");
  TRY_VOID(r.done());
  TRY_VOID(check_environment(init.env));
  init.entropy = std::move(*decoded);
  return init;
}

Result<> Loads::init(InitRequest request) {
  if (!nonces_.insert(request.nonce).second)
    return fail(ErrorKind::conflict, "nonce_used", "this nonce was used before", "every load needs a fresh nonce");
  order_.push_back(request.nonce);
  if (order_.size() > kMostNonces) {
    nonces_.erase(order_.front());
    order_.pop_front();
  }
  Guest& guest = *agent_.guest;
  TRY_VOID(guest.set_clock(request.wall_ns));
  TRY_VOID(guest.add_entropy(request.entropy));
  TRY_VOID(guest.set_hostname(request.hostname));
  TRY_VOID(guest.set_machine_id(request.machine_id));
  if (!request.ca.empty()) {
    // A guest whose disk is full or whose files were locked still has to start: its programs then meet an unknown authority.
    if (auto written = guest.set_authority(request.ca); !written) log::warn("authority.not_written", {{"error", written.error()}});
    agent_.settings.authority = true;
  }
  agent_.settings.sandbox_env = std::move(request.env);
  agent_.settings.sandbox_id = request.sandbox_id;
  ++count_;
  TRY_VOID(guest.announce(fmt::format("{{\"loads\":{},\"epoch\":{},\"sandbox_id\":{}}}\n", count_, request.epoch,
                                      json::serialize(json::string(request.sandbox_id)))));
  if (auto told = tell_environment(); !told) log::warn("environment.not_told", {{"error", told.error()}});
  if (request.loaded) guest.end_old_connections(request.peer_port);
  TRY_VOID(agent_.processes.user_group().thaw());
  if (count_ == 1 && !agent_.settings.start_command.empty()) spawn(agent_.executor, run_start_command(agent_));
  if (std::string folder = guest.hooks_folder(); !folder.empty()) {
    std::vector<std::string> env{fmt::format("SPACE_LOADS={}", count_), fmt::format("SPACE_EPOCH={}", request.epoch),
                                 fmt::format("SPACE_SANDBOX_ID={}", request.sandbox_id), "HOME=/root",
                                 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"};
    spawn(agent_.executor, run_hooks(std::move(folder), std::move(env)));
  }
  return {};
}

Result<> Loads::tell_environment() {
  json::object env;
  for (const Environment* layer : {&agent_.settings.template_env, &agent_.settings.sandbox_env})
    for (const auto& [name, value] : *layer) put_bytes(env, name, value);
  return agent_.guest->set_environment(json::serialize(json::object{{"loads", count_}, {"env", std::move(env)}}) + "\n");
}

asio::awaitable<void> Loads::run_hooks(std::string folder, std::vector<std::string> env) {
  const auto names = list_directory(folder);
  if (!names) co_return;
  std::size_t started = 0;
  for (const std::string& name : *names) {
    std::string path = fmt::format("{}/{}", folder, name);
    if (!is_trusted_program(path) || ++started > kMostHooks) {
      log::warn("hook.skipped", {{"path", path}});
      continue;
    }
    co_await run_hook(std::move(path), env);
  }
}

asio::awaitable<void> Loads::run_hook(std::string path, std::vector<std::string> env) {
  auto null = open_file("/dev/null", O_RDWR);
  if (!null) co_return;
  SpawnPlan plan;
  plan.candidates = {path};
  plan.argv = {path};
  plan.env = std::move(env);
  plan.cwd = "/";
  for (int& fd : plan.standard) fd = null->get();
  plan.cgroup = agent_.processes.user_group().descriptor();
  auto spawned = spawn_program(plan);
  if (!spawned) {
    log::warn("hook.failed", {{"path", path}, {"error", spawned.error()}});
    co_return;
  }
  // Shared, because a hook that is still there after its limit ends after this coroutine.
  struct Run {
    explicit Run(asio::any_io_executor executor) : ended(std::move(executor)) {}
    Wakeup ended;
    int status = -1;
  };
  auto run = std::make_shared<Run>(agent_.executor);
  agent_.reaper.track(spawned->pid, [run](const siginfo_t& info) {
    run->status = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    run->ended.notify();
  });
  if (!co_await run->ended.wait_until(std::chrono::steady_clock::now() + kHookLimit)) {
    ::kill(-spawned->pid, SIGKILL);
    log::warn("hook.timed_out", {{"path", path}});
  } else if (run->status != 0) {
    log::warn("hook.failed", {{"path", path}, {"status", run->status}});
  }
}

}  // namespace space::agent
