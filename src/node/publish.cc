#include "node/publish.h"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "snapshot/overlay.h"

namespace space::node {
namespace {

// The right to publish under a name, until it goes.
class Turn {
 public:
  Turn(std::set<std::string>& all, Signal& changed, std::string label) : all_(all), changed_(changed), label_(std::move(label)) {
    all_.insert(label_);
  }
  ~Turn() {
    all_.erase(label_);
    changed_.notify_all();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::set<std::string>& all_;
  Signal& changed_;
  std::string label_;
};

}  // namespace

struct Publisher::Source {
  SandboxRecord record;
  std::shared_ptr<const tmpl::Base> base;
  std::unique_ptr<snapshot::Lease> lease;
  std::vector<Fd> layers;
};

Task<tmpl::Release> Publisher::publish(Order order) {
  CO_TRY_VOID(parts_.trusted.may_publish());
  const std::string label = order.name + ":" + order.tag;
  while (under_way_.contains(label)) co_await changed_.wait();
  const Turn turn(under_way_, changed_, label);
  const std::string name = order.name, tag = order.tag, operation = order.operation;
  auto look = [this, name, tag, operation, label]() -> Result<std::optional<tmpl::Release>> {
    const auto known = parts_.published.tag(name, tag);
    if (known && known->operation == operation) {
      TRY(auto release, parts_.published.read(parts_.templates, name, tag));
      return std::optional(std::move(release));
    }
    const auto taken = parts_.templates.resolve(label);
    if (!taken && taken.error().kind == ErrorKind::not_found) return std::nullopt;
    return fail(ErrorKind::conflict, "template_tag_exists", fmt::format("template {} is published already, and stays what it is", label),
                "publish it under another tag");
  };
  CO_TRY(const std::optional<tmpl::Release> present, co_await parts_.disk.run(look));
  if (present) co_return *present;
  co_return co_await make(std::move(order));
}

Task<std::shared_ptr<Publisher::Source>> Publisher::open_source(const Order& order) {
  const std::string tenant = order.tenant, id = order.checkpoint;
  auto open = [this, tenant, id] { return parts_.vault.open(tenant, id); };
  auto found = co_await parts_.disk.run(open);
  if (!found && found.error().kind == ErrorKind::not_found)
    co_return fail(ErrorKind::not_found, "checkpoint_not_found", "there is no such checkpoint", "list what there is: GET /v1/checkpoints");
  if (!found) co_return fail(std::move(found).error());
  auto source = std::make_shared<Source>();
  source->record = found->record;
  const std::string digest = source->record.template_digest;
  CO_TRY(const tmpl::Release release, co_await parts_.bases.resolve(digest));
  // The disk's generations stand on the overlay of the very base that the sandbox was loaded from.
  const KeptBase below{source->record.base_key, source->record.base_content, source->record.size};
  CO_TRY(source->base, co_await parts_.bases.kept(release, below));
  auto hold = [this, source, tenant]() -> Result<> {
    TRY(source->lease, parts_.vault.hold(tenant, source->record.layers, nullptr));
    TRY_VOID(parts_.vault.check_layers(tenant, source->record.layers));  // what is damaged must not become a template, under a right name
    TRY(source->layers, parts_.vault.layers(tenant, source->record.layers));
    return {};
  };
  CO_TRY_VOID(co_await reading_.run(hold));
  co_return source;
}

// Everything above the root filesystem, into one overlay, by a process that shares nothing with a VM.
Task<> Publisher::copy_disk(std::shared_ptr<Source> source, std::filesystem::path into) {
  auto order = std::make_shared<vmm::DiskMerge>();
  auto prepare = [source, order, into]() -> Result<> {
    order->id = new_id();
    order->disk_mib = source->record.size.disk_mib;
    for (std::size_t i = 1; i < source->base->disk.size(); ++i) {
      TRY(Fd file, source->base->disk[i].file.duplicate());
      order->generations.push_back(std::move(file));
    }
    for (Fd& layer : source->layers) order->generations.push_back(std::move(layer));
    TRY(order->into, open_file(into, O_RDWR | O_CREAT | O_EXCL));
    TRY(order->scratch, open_file(into.parent_path(), O_TMPFILE | O_RDWR));
    for (const Fd* image : {&order->into, &order->scratch})
      TRY_VOID(snapshot::write_empty_overlay(*image, std::uint64_t{source->record.size.disk_mib} << 20));
    return {};
  };
  CO_TRY_VOID(co_await parts_.disk.run(prepare));
  co_return co_await parts_.driver.merge_generations(std::move(*order));
}

Task<tmpl::Release> Publisher::make(Order given) {
  const auto order = std::make_shared<const Order>(std::move(given));
  CO_TRY(const std::shared_ptr<Source> source, co_await open_source(*order));
  auto stage = [this] { return parts_.published.stage_folder(); };
  CO_TRY(const std::filesystem::path staged, co_await parts_.disk.run(stage));
  auto clear = [staged] { return remove_tree(staged); };
  auto copied = co_await copy_disk(source, staged / "disk.qcow2");
  if (!copied) {
    (void)co_await parts_.disk.run(clear);
    co_return fail(std::move(copied).error());
  }
  const tmpl::Release& parent = source->base->release;
  tmpl::PublishedStore::Order next;
  next.name = order->name;
  next.tag = order->tag;
  next.parent = parent;
  next.staged = staged;
  next.created_ms = parts_.clock.wall_ms();
  const vmm::Size size = source->record.size;
  next.config = order->config.value_or(
      tmpl::RuntimeConfig{size.cpus, size.memory_mib, size.disk_mib, parent.env, parent.user, parent.workdir, parent.start, parent.ready});
  auto place = [this, next] { return parts_.published.place(parts_.templates, next); };
  auto placed = co_await parts_.disk.run(place);
  if (!placed) {
    (void)co_await parts_.disk.run(clear);
    co_return fail(std::move(placed).error());
  }
  // Booted, never loaded: what the sandbox's memory held is nowhere in it.
  const WantedSize own{};
  auto base = co_await parts_.bases.base(*placed, own);
  const tmpl::Release release = *placed;
  auto finish = [this, release, order, &base]() -> Result<> {
    if (base) return parts_.published.name(release, order->operation);
    TRY_VOID(parts_.published.drop(release.digest));
    return fail(base.error());
  };
  CO_TRY_VOID(co_await parts_.disk.run(finish));
  log::info("template.published", {{"template", tmpl::label_of(release)},
                                   {"digest", release.digest},
                                   {"checkpoint", order->checkpoint},
                                   {"operation", order->operation}});
  co_return release;
}

}  // namespace space::node
