// The life of the api role: what needs root first, then the loop, then a clean end.
#include <fmt/format.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/signal_set.hpp>

#include "api/api.h"
#include "api/certificates.h"
#include "api/ports.h"
#include "api/routes.h"
#include "api/services.h"
#include "api/tenancy.h"
#include "base/file.h"
#include "base/log.h"
#include "build/builds.h"
#include "control/sqlite_store.h"
#include "e2b/e2b.h"
#include "http/tls.h"

namespace space::api {
namespace {

constexpr std::chrono::seconds kGrace{3};
constexpr std::chrono::milliseconds kEgressPause{500};
constexpr std::chrono::milliseconds kEgressRound{30'000};

struct Opened {  // what was opened while we still might be root
  Fd listener;
  std::shared_ptr<http::TlsContext> tls;
  std::string url;
  std::string first_key;
  // With a domain: the listener for its names, and the files of its certificate.
  Fd domain_listener;
  std::shared_ptr<http::TlsContext> domain_tls;
  std::filesystem::path certificate;
};

Result<> check(const ApiConfig& config) {
  boost::system::error_code error;
  const auto address = asio::ip::make_address(config.address, error);
  if (error)
    return fail(ErrorKind::invalid_argument, "address_invalid", fmt::format("'{}' is no IP address", config.address),
                "give an address such as 127.0.0.1, not a name");
  const bool tls = !config.tls_certificate.empty() && !config.tls_key.empty();
  if (config.tls_certificate.empty() != config.tls_key.empty())
    return fail(ErrorKind::invalid_argument, "tls_incomplete", "a TLS certificate needs its key, and the other way round",
                "give both files, or none");
  if (!config.domain.empty() && !is_domain(config.domain))
    return fail(ErrorKind::invalid_argument, "domain_invalid", fmt::format("'{}' is no domain", config.domain),
                "give a name such as sandboxes.example.org, in lower case");
  if (!address.is_loopback() && !tls)
    return fail(ErrorKind::invalid_argument, "tls_required",
                fmt::format("{} can be reached from other machines: API keys would cross the network in the clear", config.address),
                "give a TLS certificate and its key (--tls-cert, --tls-key), or listen on 127.0.0.1 behind a proxy that speaks TLS");
  return {};
}

std::filesystem::path database_of(const ApiConfig& config) { return config.data_dir / "control" / "space.db"; }

Result<> own(const std::filesystem::path& path, std::uint32_t uid) {
  if (uid == 0 || ::geteuid() != 0) return {};
  if (::chown(path.c_str(), uid, uid) != 0) return fail_errno(errno, "give away " + path.string());
  return {};
}

// The names of a domain are always served over TLS: with the files that were given, else with a certificate of our own.
Result<> open_domain(const ApiConfig& config, Opened& out) {
  if (config.domain.empty()) return {};
  CertificateFiles files{{}, config.tls_certificate, config.tls_key};
  if (files.key.empty()) {
    TRY(files, own_certificates(config.data_dir / "tls", config.domain));
    TRY_VOID(own(files.key, config.uid));
  }
  TRY(out.domain_tls, http::TlsContext::from_files(files.certificate.string(), files.key.string()));
  TRY(out.domain_listener, http::listen_tcp(config.domain_address, config.domain_port));
  TRY(const std::uint16_t port, http::local_port(out.domain_listener));
  out.certificate = files.certificate;
  log::info("api.domain", {{"domain", config.domain}, {"port", std::int64_t{port}}, {"certificate", files.certificate.string()}});
  if (!config.domain_file.empty())
    TRY_VOID(write_file_durable(config.domain_file, fmt::format("{}:{}\n{}\n", config.domain, port, files.authority.string()), 0644));
  return {};
}

Result<Opened> open_all(const ApiConfig& config) {
  TRY_VOID(check(config));
  Opened out;
  if (!config.tls_key.empty()) {
    TRY(out.tls, http::TlsContext::from_files(config.tls_certificate.string(), config.tls_key.string()));
  }
  TRY_VOID(make_directories(config.data_dir, 0755));
  TRY_VOID(make_directories(database_of(config).parent_path(), 0700));
  TRY_VOID(own(database_of(config).parent_path(), config.uid));
  TRY(out.first_key, first_key(config.first_key_file.empty() ? config.data_dir / "first.key" : config.first_key_file, database_of(config)));
  TRY(out.listener, http::listen_tcp(config.address, config.port));
  TRY(const std::uint16_t port, http::local_port(out.listener));
  const bool v6 = config.address.find(':') != std::string::npos;
  TRY_VOID(open_domain(config, out));
  out.url = fmt::format("{}://{}:{}", out.tls ? "https" : "http", v6 ? "[" + config.address + "]" : config.address, port);
  return out;
}

// For good: no way back to root, and nothing that a program started from here could win.
Result<> drop_root(std::uint32_t uid) {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno(errno, "give up new privileges");
  if (uid == 0 || ::geteuid() != 0) return {};
  if (::setgroups(0, nullptr) != 0 || ::setresgid(uid, uid, uid) != 0 || ::setresuid(uid, uid, uid) != 0)
    return fail_errno(errno, "become the api's user");
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return fail_errno(errno, "become undumpable");
  return {};
}

void raise_file_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

control::EngineOptions engine_options(const ApiConfig& config) {
  control::EngineOptions options;
  options.patience = std::chrono::seconds(config.node_patience_s);
  options.max_running = config.max_running;
  options.max_pending = config.max_pending;
  return options;
}

// Members end in the order opposite to their making: requests first, the database behind them.
struct Role {
  Role(asio::io_context& loop, std::unique_ptr<control::Store> opened, const ApiConfig& config)
      : store(std::move(opened)),
        node(loop.get_executor(), config.node_socket.string(), system_clock()),
        engine(loop.get_executor(), *store, node, system_clock(), engine_options(config)),
        keys(*store, system_clock()),
        services(loop.get_executor(), *store, engine, node, keys, system_clock()),
        builds(build_parts(loop.get_executor(), config)),
        e2b(e2b_parts(loop.get_executor()), {config.domain, config.e2b_allow_unsecured, !config.tls_certificate.empty()}),
        egress(loop.get_executor(), (config.node_socket.parent_path() / "egress" / "egress.sock").string()) {
    services.egress = &egress;
    engine.on_policy(policy_watch(services));
    services.builds = &builds;
    services.tenants_on_tcg = config.tenants_on_tcg;
    add_routes(services, router);
    http::Options options;
    options.server_name = "space";
    options.any_target = true;  // of ports
    const http::Handler routed = [this](http::Exchange& exchange) { return router(exchange); };
    native = with_ports(services, routed, config.domain);
    server = std::make_unique<http::Server>(
        loop.get_executor(), [this](http::Exchange& exchange) { return e2b.serve(exchange, native); }, options);
  }
  e2b::Parts e2b_parts(asio::any_io_executor loop) {
    return {loop,
            *store,
            engine,
            node,
            &egress,
            system_clock(),
            [this](std::string secret, control::Scope needed) { return keys.authenticate(std::move(secret), needed); },
            &builds};
  }
  build::BuildParts build_parts(asio::any_io_executor loop, const ApiConfig& config) {
    return {loop, *store, engine, node, &egress, system_clock(), database_of(config).parent_path()};
  }
  std::unique_ptr<control::Store> store;
  control::Node node;
  control::Engine engine;
  KeyRing keys;
  Services services;
  build::Builds builds;
  e2b::E2b e2b;
  control::Egress egress;
  http::Router router;
  http::Handler native;  // all that is not E2B's
  std::unique_ptr<http::Server> server;
};

// A certificate that was replaced on disk is taken for later connections, without a restart.
asio::awaitable<void> watch_certificate(std::shared_ptr<http::TlsContext> tls, std::filesystem::path file, const Services& services) {
  std::error_code ignored;
  auto taken = std::filesystem::last_write_time(file, ignored), tried = taken;
  while (!services.stopping) {
    co_await sleep_for(std::chrono::seconds(5));
    const auto now = std::filesystem::last_write_time(file, ignored);
    if (now == taken || ignored) continue;
    // Tried until it works: the key of a certificate may be replaced after it. Told once.
    if (auto reloaded = tls->reload(); reloaded) {
      taken = now;
      log::info("tls.reloaded", {{"file", file.string()}});
    } else if (now != tried) {
      log::warn("tls.not_reloaded", {{"file", file.string()}, {"error", reloaded.error()}});
    }
    tried = now;
  }
}

// The gateway agrees with the store again a moment after every change, and now and then without one.
asio::awaitable<void> keep_egress(Role& role) {
  bool told = false;
  while (!role.services.stopping) {
    const auto count = role.services.appended_count;
    const bool complete = role.engine.reconciled();  // before the gateway is asked: it must not know one that is not adopted yet
    const auto done = co_await role.egress.reconcile(*role.store, complete);
    if (!done && !std::exchange(told, true)) log::warn("egress.not_reconciled", {{"error", done.error()}});
    if (done) told = false;
    co_await sleep_for(kEgressPause);
    while (done && count == role.services.appended_count && !role.services.stopping)
      if (!co_await role.services.appended.wait_for(kEgressRound)) break;
  }
}

Task<> begin(Role& role, Opened& opened, const ApiConfig& config) {
  if (!opened.first_key.empty()) CO_TRY_VOID(co_await role.keys.record_first(opened.first_key));
  CO_TRY(const std::size_t keys, co_await role.store->count_keys());
  if (keys == 0)
    co_return fail(ErrorKind::conflict, "no_key", "the database has no API key and there is no first.key",
                   "remove the empty control/space.db and start again: a key is made then");
  CO_TRY_VOID(co_await admit_present_tenants(role.services));
  CO_TRY_VOID(co_await role.engine.start());
  CO_TRY_VOID(co_await role.builds.start());
  CO_TRY_VOID(role.server->serve(std::move(opened.listener), opened.tls));
  if (opened.domain_listener) {
    CO_TRY_VOID(role.server->serve(std::move(opened.domain_listener), opened.domain_tls));
    spawn(role.services.executor, watch_certificate(opened.domain_tls, opened.certificate, role.services));
  }
  if (!config.address_file.empty()) CO_TRY_VOID(write_file_durable(config.address_file, opened.url + "\n", 0644));
  spawn(role.services.executor, keep_egress(role));
  log::info("api.listening", {{"url", opened.url}});
  co_return Result<>();
}

asio::awaitable<void> live(asio::io_context& loop, Role& role, Opened& opened, const ApiConfig& config, int& status) {
  asio::signal_set signals(loop, SIGTERM, SIGINT);
  auto begun = co_await begin(role, opened, config);
  if (!begun) {
    log::error("api.not_started", {{"error", begun.error()}});
    fmt::print(stderr, "space api: {}\n", describe(begun.error()));
  } else {
    status = 0;
    boost::system::error_code ignored;
    co_await signals.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    log::info("api.stopping");
  }
  role.services.stopping = true;
  role.builds.stop();
  role.engine.stop();
  role.services.appended.notify_all();
  co_await role.server->stop(kGrace);
  if (begun && !config.address_file.empty()) ::unlink(config.address_file.c_str());
  loop.stop();
}

}  // namespace

int run(const ApiConfig& config) {
  log::configure("api", config.debug ? log::Level::debug : log::Level::info);
  ::umask(022);
  std::signal(SIGPIPE, SIG_IGN);
  raise_file_limit();
  const auto stop = [](const Error& error) {
    log::error("api.not_started", {{"error", error}});
    fmt::print(stderr, "space api: {}\n", describe(error));
    return 1;
  };
  auto opened = open_all(config);
  if (!opened) return stop(opened.error());
  if (auto dropped = drop_root(config.uid); !dropped) return stop(dropped.error());
  if (config.enclose)
    if (auto enclosed = config.enclose(); !enclosed) return stop(enclosed.error());

  asio::io_context loop(1);
  auto store = control::open_sqlite_store(database_of(config), loop.get_executor(), system_clock());
  if (!store) return stop(store.error());
  int status = 1;
  Role role(loop, std::move(*store), config);
  spawn(loop.get_executor(), live(loop, role, *opened, config, status));
  loop.run();
  log::info("api.stopped");
  return status;
}

}  // namespace space::api
