#include <boost/asio/as_tuple.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "base/unix_socket.h"
#include "egress/authority.h"
#include "egress/egress.h"
#include "egress/handover.h"
#include "egress/routes.h"
#include "egress/socket_address.h"

namespace space::egress {
namespace {

constexpr std::size_t kDiskThreads = 2;
constexpr std::chrono::seconds kStopGrace{2};

// The parent needs no privilege at all; secrets of its memory reach neither core files nor a debugger of the same account.
Result<> settle_down(const EgressConfig& config, const std::filesystem::path& folder) {
  TRY_VOID(make_directories(folder, 0700));
  TRY_VOID(make_directories(folder / "audit", 0700));
  if (config.uid != 0 && ::geteuid() == 0) {
    for (const auto& path : {folder, folder / "audit"})
      if (::chown(path.c_str(), config.uid, config.uid) != 0) return fail_errno(errno, "hand over " + path.string());
    if (::setgroups(0, nullptr) != 0 || ::setresgid(config.uid, config.uid, config.uid) != 0 ||
        ::setresuid(config.uid, config.uid, config.uid) != 0)
      return fail_errno(errno, "drop privileges");
  }
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "prctl");
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  std::signal(SIGPIPE, SIG_IGN);
  return {};
}

// What every worker would stumble over is found before the first one starts.
Result<> check(const EgressConfig& config) {
  for (const std::string& resolver : config.resolvers) TRY_VOID(parse_endpoint(resolver));
  for (const std::string& range : config.allowed_ranges) TRY_VOID(Cidr::parse(range));
  TRY_VOID(UpstreamTls::make(config.ca_file.string()));
  return {};
}

Task<> serve(asio::any_io_executor executor, const EgressConfig& config, Parent& parent, AuditLog& audit) {
  http::Router router;
  router.use(peer_check(config.peer_uids));
  add_sandbox_routes(router, parent);
  add_audit_routes(router, parent);
  add_secret_routes(router, parent);
  http::Options options;
  options.server_name = "space-egress";
  http::Server server(
      executor, [&router](http::Exchange& exchange) { return router(exchange); }, options);
  CO_TRY(Fd handover, listen_unix(config.run_dir / "egress" / "fds.sock", SOCK_SEQPACKET, 0666));
  CO_TRY(Fd listener, listen_unix(config.run_dir / "egress" / "egress.sock", SOCK_STREAM, 0666));
  CO_TRY_VOID(server.serve(std::move(listener)));
  // For whoever seals credentials without asking the api role.
  CO_TRY_VOID(write_file_durable(config.run_dir / "egress" / "credential.key", parent.sealing_key() + "\n", 0644));
  spawn(executor, serve_handover(executor, std::move(handover), config.node_uid, parent));
  spawn(executor, audit.keep_writing());
  spawn(executor, parent.watch_own_addresses());
  log::info("egress.ready", {{"sandboxes", parent.states().size()}});
  asio::signal_set signals(executor, SIGTERM, SIGINT);
  co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  co_await server.stop(kStopGrace);
  co_await audit.flush();
  log::info("egress.stopped");
  co_return Result<>();
}

Result<> run_parent(const EgressConfig& config) {
  const auto folder = config.data_dir / "egress";
  TRY_VOID(settle_down(config, folder));
  TRY_VOID(check(config));
  TRY(Secret key, load_store_key(config.key_source, folder / "store.key"));
  if (config.enclose) TRY_VOID(config.enclose());
  BlockingPool disk(kDiskThreads);
  Result<> outcome;
  {
    asio::io_context loop(1);
    AuditLog audit(loop.get_executor(), disk, folder / "audit", system_clock(), {});
    Parent parent(loop.get_executor(), config, disk, audit, Vault(folder / "vault", std::move(key)));
    TRY_VOID(parent.open());
    asio::co_spawn(loop, serve(loop.get_executor(), config, parent, audit), [&](std::exception_ptr error, Result<> result) {
      if (error) std::rethrow_exception(error);
      outcome = std::move(result);
      loop.stop();
    });
    loop.run();
    disk.join();
  }
  return outcome;
}

}  // namespace

int run(const EgressConfig& config) {
  log::configure("egress", config.log_level);
  const auto done = run_parent(config);
  if (done) return 0;
  log::error("egress.failed", {{"error", done.error()}});
  return 1;
}

}  // namespace space::egress
