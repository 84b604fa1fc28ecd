// space-agent: PID 1 of a sandbox's VM, or, with --no-init, a plain process for tests and the sim driver.
#include <boost/asio/io_context.hpp>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <malloc.h>
#include <string>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "agent/agent.h"
#include "agent/boot.h"
#include "agent/routes.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "http/server.h"

namespace space::agent {
namespace {

constexpr const char* kUsage =
    "space-agent: runs processes and serves files inside a SPACE sandbox\n"
    "  As PID 1 it boots the guest. Elsewhere:\n"
    "  space-agent --no-init --listen unix:PATH|ADDRESS:PORT... [--allow-any-peer] [--user NAME] [--template FILE]\n";

struct Options {
  bool init = true;
  bool allow_any_peer = false;
  std::vector<std::string> listen;
  std::string user;
  std::string template_file = "/etc/space/template.json";
};

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    const auto value = [&]() -> Result<std::string> {
      if (i + 1 < argc) return std::string(argv[++i]);
      return fail(ErrorKind::invalid_argument, "invalid_option", std::string(name) + " needs a value", kUsage);
    };
    if (name == "--no-init") {
      options.init = false;
    } else if (name == "--allow-any-peer") {
      options.allow_any_peer = true;
    } else if (name == "--listen") {
      TRY(std::string where, value());
      options.listen.push_back(std::move(where));
    } else if (name == "--user") {
      TRY(options.user, value());
    } else if (name == "--template") {
      TRY(options.template_file, value());
    } else if (::getpid() != 1) {  // the kernel hands over words of its command line that it does not know
      return fail(ErrorKind::invalid_argument, "invalid_option", "unknown option " + std::string(name), kUsage);
    }
  }
  return options;
}

Result<Fd> listen_on(const std::string& where, bool any_peer) {
  if (where.starts_with("unix:")) return listen_unix(where.substr(5), SOCK_STREAM, any_peer ? 0666 : 0600);
  const std::size_t colon = where.rfind(':');
  std::uint16_t port = 0;
  const char* end = where.data() + where.size();
  if (colon == std::string::npos || std::from_chars(where.data() + colon + 1, end, port).ptr != end)
    return fail(ErrorKind::invalid_argument, "invalid_option", "--listen takes unix:PATH or ADDRESS:PORT", kUsage);
  std::string address = where.substr(0, colon);
  if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
  return http::listen_tcp(address, port);
}

// Processes of the agent must never find 0, 1 or 2 free, since spawn.cc puts theirs there.
void open_standard_descriptors() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0 && fd <= 2; fd = ::open("/dev/null", O_RDWR)) {
  }
}

void prepare_process() {
  // One heap for all threads: they allocate little, and each of its own would be memory that every sandbox has to itself.
  ::mallopt(M_ARENA_MAX, 1);
  ::umask(0);  // modes are said, not guessed
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // PID 1 is one anyway
  const rlimit files{1 << 18, 1 << 20};
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) {
    rlimit most{};
    if (::getrlimit(RLIMIT_NOFILE, &most) == 0) {
      most.rlim_cur = most.rlim_max;
      ::setrlimit(RLIMIT_NOFILE, &most);
    }
  }
}

http::Options server_options() {
  http::Options options;
  options.server_name = "space-agent";
  // A reader that does not read is slow, not at fault; for how long it may hold its process up is said in window.h.
  options.body_timeout = std::chrono::minutes(10);
  // node keeps a connection made ahead for the next command; it, not this end, decides when to close one, so that no request
  // meets a connection that is just being closed.
  options.idle_timeout = std::chrono::hours(24);
  options.max_connections = 2048;
  return options;
}

Result<> serve(const Options& options) {
  asio::io_context loop(1);
  Agent agent(loop.get_executor(), options.init ? real_guest() : no_guest());
  agent.allow_any_peer = options.allow_any_peer;
  agent.boot_id = new_id();
  if (auto loaded = agent.settings.load_template(options.template_file); !loaded)
    log::warn("template.unreadable", {{"error", loaded.error()}});
  if (!options.user.empty()) agent.settings.default_user = options.user;
  if (options.init) {
    if (auto opened = agent.processes.user_group().open("/sys/fs/cgroup/user"); !opened)
      log::warn("cgroup.missing", {{"error", opened.error()}});
    if (auto named = agent.guest->set_hostname("sandbox"); !named) log::warn("hostname.failed", {{"error", named.error()}});
  }
  TRY_VOID(agent.reaper.start());

  http::Router router;
  add_routes(router, agent);
  http::Server server(
      loop.get_executor(), [&router](http::Exchange& x) { return router(x); }, server_options());
  for (const std::string& where : options.listen) {
    TRY(Fd listener, listen_on(where, options.allow_any_peer));
    TRY_VOID(server.serve(std::move(listener)));
  }
  log::info("agent.ready");
  loop.run();
  return {};
}

int run(int argc, char** argv) {
  log::configure("agent", log::Level::info);
  auto options = parse(argc, argv);
  if (!options) {
    std::fprintf(stderr, "%s\n%s", options.error().message.c_str(), kUsage);
    return 2;
  }
  if (options->init && ::getpid() != 1) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  auto result = options->init ? boot() : Result<>();
  open_standard_descriptors();
  prepare_process();
  if (options->init) options->listen = {"0.0.0.0:" + std::to_string(wire::kAgentPort), "[::]:" + std::to_string(wire::kAgentPort)};
  if (result) result = serve(*options);
  if (result) return 0;
  log::error("agent.failed", {{"error", result.error()}});
  if (options->init) {
    // A guest without its agent is of no use: the VMM ends, and the console says why.
    ::sync();
    ::reboot(RB_AUTOBOOT);
  }
  return 1;
}

}  // namespace
}  // namespace space::agent

int main(int argc, char** argv) { return space::agent::run(argc, argv); }
