#include "node/node.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <csignal>
#include <thread>
#include <unistd.h>

#include "base/file.h"
#include "base/unix_socket.h"
#include "node/access.h"
#include "node/automatic_snapshots.h"
#include "node/gateway.h"
#include "node/lineages.h"
#include "node/machine.h"
#include "node/mounts.h"
#include "node/pool_templates.h"
#include "node/ports.h"
#include "node/publish.h"
#include "node/privileges.h"
#include "node/recovery.h"
#include "node/report_refusals.h"
#include "node/retention.h"
#include "node/routes.h"
#include "node/upkeep.h"
#include "node/shares.h"
#include "node/watch_use.h"
#include "snapshot/local_blob_store.h"
#include "vmm/qemu_driver.h"
#include "vmm/sim_driver.h"
#include "wire/warden_client.h"

namespace space::node {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kDiskThreads = 4;
constexpr std::chrono::seconds kWardenPatience{10};
constexpr std::chrono::seconds kStopGrace{3};

// Every VM costs descriptors here: control, log, agent connections, base images.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

// The roles start side by side, so the warden may need a moment.
Result<std::shared_ptr<wire::WardenClient>> connect_warden(const fs::path& socket) {
  for (const auto until = std::chrono::steady_clock::now() + kWardenPatience;;) {
    auto client = wire::WardenClient::connect(socket.string());
    if (client) return std::shared_ptr<wire::WardenClient>(std::move(*client));
    if (std::chrono::steady_clock::now() >= until) return fail(std::move(client).error());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

struct Folders {
  explicit Folders(const NodeConfig& config)
      : node(config.data_dir / "node"),
        templates(config.templates_dir.empty() ? config.data_dir / "templates" : config.templates_dir),
        bases(config.bases_dir.empty() ? config.data_dir / "bases" : config.bases_dir),
        sockets(config.run_dir / "node") {}
  fs::path node, templates, bases, sockets;

  Result<> prepare() const {
    for (const fs::path& folder : {node, bases, sockets}) TRY_VOID(make_directories(folder, 0700));
    return {};
  }
};

class Node {
 public:
  Node(const NodeConfig& config, const Folders& folders)
      : config_(config),
        folders_(folders),
        executor_(loop_.get_executor()),
        records_(folders.node),
        published_(folders.node / "templates"),
        templates_(folders.templates, published_.root()),
        events_(executor_) {}

  Result<> run() {
    Result<> outcome;
    asio::co_spawn(loop_, serve(), [&](std::exception_ptr error, Result<> result) {
      if (error) std::rethrow_exception(error);
      outcome = std::move(result);
      loop_.stop();
    });
    loop_.run();
    disk_.join();
    return outcome;
  }

 private:
  Task<> serve() {
    CO_TRY_VOID(co_await disk_.run([this] { return records_.open(); }));
    CO_TRY(warden_, co_await disk_.run([this] { return connect_warden(config_.run_dir / "warden.sock"); }));
    CO_TRY_VOID(co_await open_driver());
    images_.emplace(folders_.bases, *driver_, disk_);
    if (config_.driver == "qemu") {
      gateway_ = std::make_unique<Gateway>(executor_, warden_, config_.run_dir);
      spawn(executor_, gateway_->run());
    }
    // A VM that ended meanwhile has no weight, which is no error.
    shares_.emplace(executor_, disk_,
                    [warden = warden_](const std::string& vm, std::uint32_t weight) { (void)warden->set_cpu_weight(vm, weight); });
    machines_ = make_machines(executor_, *driver_, *images_, records_, disk_, *shares_, gateway_.get());
    CO_TRY(tmpl::TrustPolicy trust, co_await disk_.run([this] { return read_trust(); }));
    trusted_.emplace(templates_, std::move(trust));
    bases_ = make_base_source(*trusted_, *images_, disk_);
    const PoolLimits limits{config_.pool_spawned, config_.pool_ready, config_.pool_kinds,
                            config_.pool_ready == 0 ? 0 : config_.pool_ready_most,
                            std::max<std::size_t>(2, std::thread::hardware_concurrency())};
    pools_.emplace(executor_, *machines_, limits);
    CO_TRY(auto info, co_await disk_.run([this] { return warden_->hello(); }));
    CO_TRY(vault_, co_await disk_.run([this] { return open_vault(); }));
    const Sandboxes::Parts parts{*machines_, *bases_, *pools_, records_, disk_, events_, system_clock(), *vault_, info.vmm_build};
    sandboxes_.emplace(executor_, parts, config_.max_sandboxes);
    if (gateway_) gateway_->on_late([this](std::string vm) { spawn(executor_, sandboxes_->introduce_again(std::move(vm))); });

    CO_TRY(const Recovered recovered, co_await recover(*sandboxes_, parts, *driver_));
    CO_TRY(const TokenKey tokens, co_await disk_.run([this] { return TokenKey::open(folders_.node / "token.key"); }));
    CO_TRY_VOID(co_await disk_.run([this] { return published_.sweep(); }));
    const Publisher::Parts publishing{templates_, *trusted_, published_, *bases_, *vault_, *driver_, disk_, system_clock()};
    Publisher publisher(executor_, publishing);
    RouteParts routes{executor_, *sandboxes_,      *pools_,     events_, templates_, *driver_,
                      disk_,     info.vmm_version, info.limits, tokens,  *vault_};
    routes.bases = bases_.get();
    routes.publisher = &publisher;
    const auto mounts = std::make_shared<Mounts>(executor_, *sandboxes_, events_);
    routes.mounts = mounts.get();
    http::Router router;
    const auto list = [this] { return disk_.run([this] { return templates_.list(); }); };
    const auto pool_templates = std::make_shared<PoolTemplates>(executor_, *pools_, *bases_, list, config_.pool_templates);
    routes.pool_templates = pool_templates.get();
    router.use(peer_check(config_.api_uid));
    add_node_routes(router, routes);
    add_publish_routes(router, routes);
    add_sandbox_routes(router, routes);
    add_command_routes(router, routes);
    add_file_routes(router, routes);
    add_envd_routes(router, routes);
    add_volume_routes(router, routes);
    add_checkpoint_routes(router, routes);

    http::Options options;
    options.server_name = "space-node";
    options.body_timeout = std::chrono::minutes(10);  // the api role keeps time for its clients
    options.any_target = true;                        // of ports
    http::Server server(executor_, with_ports(router, routes, config_.api_uid), options);
    CO_TRY(Fd listener, listen_unix(config_.run_dir / "node.sock", SOCK_STREAM, 0666));
    CO_TRY_VOID(server.serve(std::move(listener)));
    log::info("node.ready", {{"driver", driver_->name()},
                             {"accelerator", driver_->accelerator()},
                             {"vmm", info.vmm_version},
                             {"adopted", recovered.adopted},
                             {"stored", recovered.stored},
                             {"ended", recovered.ended},
                             {"removed", recovered.removed},
                             {"leftovers", recovered.leftovers.size()}});
    spawn(executor_, collect_garbage());
    spawn(executor_, watch_use(executor_, *sandboxes_, gateway_ ? config_.run_dir / "egress" / "egress.sock" : fs::path(), stopping_));
    if (gateway_)
      spawn(executor_, report_refusals(executor_, *sandboxes_, warden_, disk_, config_.run_dir / "egress" / "egress.sock", stopping_));
    spawn(executor_, mounts->keep());
    // A folder that was named may be others' too, and what they need is not known here.
    if (folders_.bases == config_.data_dir / "bases")
      spawn(executor_, prune_bases(*images_, *sandboxes_, *vault_, templates_, disk_, stopping_));
    spawn(executor_, take_snapshots(*sandboxes_, stopping_));
    if (gateway_) spawn(executor_, watch_lineages(*gateway_, *sandboxes_, *vault_, disk_));
    spawn(executor_, sweep_leftovers(recovered.leftovers, records_, disk_, *driver_));
    spawn(executor_, pool_templates->keep());

    co_await asked_to_stop();
    stopping_ = true;
    log::info("node.stopping");
    mounts->stop();
    pool_templates->stop();
    pools_->stop();
    co_await images_->stop();
    co_await server.stop(kStopGrace);
    co_await sandboxes_->settle();
    co_await pools_->drain();
    log::info("node.stopped");
    co_return Result<>{};
  }

  Result<tmpl::TrustPolicy> read_trust() const {
    return config_.trust_file.empty() ? tmpl::TrustPolicy{} : tmpl::read_trust_policy(config_.trust_file);
  }

  // In the warden's hands: what a VMM still holds open is taken out of its hands before it is hashed.
  Result<std::unique_ptr<Vault>> open_vault() {
    const snapshot::FreezeFile freeze = [this](const Fd& file, bool immutable) { return warden_->freeze_file(file, immutable); };
    snapshot::LocalStoreOptions options;
    options.low_water_bytes = config_.store_low_water_bytes;
    options.quota_bytes = config_.storage_quota_bytes;
    options.freeze = freeze;
    TRY(auto store, snapshot::LocalBlobStore::open(folders_.node / "store", std::move(options)));
    for (const auto& [tenant, bytes] : config_.storage_quotas) store->set_quota(tenant, bytes);
    TRY(snapshot::ManifestKey key, snapshot::ManifestKey::open(folders_.node / "manifest.key"));
    return std::make_unique<Vault>(std::move(store), std::move(key), freeze, folders_.node / "fetched");
  }

  Task<> open_driver() {
    if (config_.driver == "sim") {
      vmm::SimOptions options;
      options.sockets = folders_.sockets;
      CO_TRY(driver_, co_await vmm::SimDriver::open(disk_, std::move(options)));
      co_return Result<>{};
    }
    if (config_.driver != "qemu")
      co_return fail(ErrorKind::invalid_argument, "unknown_driver", fmt::format("there is no driver \"{}\"", config_.driver), "use qemu");
    vmm::QemuOptions options;
    options.sockets = folders_.sockets;
    CO_TRY(driver_, co_await vmm::QemuDriver::open(warden_, disk_, std::move(options)));
    co_return Result<>{};
  }

  // Recovery has taken back the holds of every sandbox before this begins.
  asio::awaitable<void> collect_garbage() {
    constexpr std::chrono::milliseconds kGarbageLook{5'000};
    constexpr int kMostIdleLooks = 120;  // looks without anything forgotten; then it is done all the same
    constexpr int kRetireEvery = 6;
    for (int idle = 0, look = 0; !stopping_; ++idle, ++look) {
      co_await sleep_for(kGarbageLook);
      if (!stopping_ && (vault_->has_grown() || look % kRetireEvery == 0)) co_await retire_old();
      if (stopping_ || (!vault_->has_garbage() && idle < kMostIdleLooks)) continue;
      idle = 0;
      auto work = [this]() -> Result<> { return vault_->collect(), Result<>{}; };
      (void)co_await disk_.run(work);
    }
  }

  asio::awaitable<void> retire_old() {
    std::map<std::string, std::int64_t> kept;
    for (const SandboxRecord& record : sandboxes_->list()) kept.emplace(record.id, record.snapshot_keep);
    const RetentionSettings rules{config_.keep_checkpoints, std::int64_t{config_.keep_checkpoints_days} * 86'400'000};
    auto work = [this, kept, rules]() -> Result<> { return retire(*vault_, rules, kept, system_clock().wall_ms()), Result<>{}; };
    (void)co_await disk_.run(work);
  }

  asio::awaitable<void> asked_to_stop() {
    asio::signal_set signals(executor_, SIGTERM, SIGINT);
    co_await signals.async_wait(asio::as_tuple(asio::use_awaitable));
  }

  const NodeConfig& config_;
  const Folders& folders_;
  bool stopping_ = false;
  // Destroyed from the end: what uses something stands below it. The loop goes last, with the coroutines that are still waiting.
  asio::io_context loop_{1};
  asio::any_io_executor executor_;
  BlockingPool disk_{kDiskThreads};
  RecordStore records_;
  tmpl::PublishedStore published_;
  tmpl::TemplateStore templates_;
  std::optional<tmpl::TrustedTemplates> trusted_;
  Events events_;
  std::shared_ptr<wire::WardenClient> warden_;
  std::unique_ptr<vmm::Driver> driver_;
  std::optional<tmpl::BaseImages> images_;
  std::unique_ptr<Gateway> gateway_;
  std::optional<FairShares> shares_;
  std::unique_ptr<Machines> machines_;
  std::unique_ptr<BaseSource> bases_;
  std::optional<Pools> pools_;
  std::unique_ptr<Vault> vault_;
  std::optional<Sandboxes> sandboxes_;
};

Result<> run_node(const NodeConfig& config) {
  const Folders folders(config);
  TRY_VOID(folders.prepare());
  TRY_VOID(become(config.uid, {folders.node, folders.bases, folders.sockets}));
  raise_descriptor_limit();
  std::signal(SIGPIPE, SIG_IGN);
  if (config.enclose) TRY_VOID(config.enclose());
  Node node(config, folders);
  return node.run();
}

}  // namespace

int run(const NodeConfig& config) {
  log::configure("node", config.log_level);
  const auto done = run_node(config);
  if (done) return 0;
  log::error("node.failed", {{"error", done.error()}});
  return 1;
}

}  // namespace space::node
