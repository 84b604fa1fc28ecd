#include "node/pool_templates.h"

#include "base/log.h"

namespace space::node {
namespace {

constexpr std::chrono::seconds kEvery{30};
constexpr int kRoundsBetween = 20;  // ten minutes; reading every template there is takes longer than looking at a few names

}  // namespace

asio::awaitable<void> PoolTemplates::keep() {
  const auto self = shared_from_this();
  for (int rounds = 0; !stopping_; ++rounds) {
    const bool asked = std::exchange(asked_, false);
    const auto moved = co_await moved_names();
    // First: its memory is needed, and its place among the kinds.
    if (asked || !moved.empty() || rounds % kRoundsBetween == 0) co_await drop_old();
    for (const auto& [reference, release] : moved)
      if (!stopping_) co_await make_ready(reference, release);
    if (!asked_ && !stopping_) co_await changed_.wait_for(kEvery);
  }
}

void PoolTemplates::look() {
  asked_ = true;
  changed_.notify_all();
}

void PoolTemplates::stop() {
  stopping_ = true;
  changed_.notify_all();
}

asio::awaitable<PoolTemplates::Names> PoolTemplates::moved_names() {
  Names moved;
  for (const std::string& reference : references_) {
    const auto release = co_await bases_.resolve(reference);
    const auto [at, first] = known_.try_emplace(reference);
    std::optional<tmpl::Release>& known = at->second;
    if (!release) {  // there is nothing to do yet
      if (first || known) log::info("pool.no_template", {{"template", reference}, {"error", release.error()}});
      known.reset();
      continue;
    }
    if (known && same_base(*known, *release)) continue;
    if (!first) log::info("pool.template_moved", {{"template", reference}, {"digest", release->digest}});
    known = *release;
    moved.emplace_back(reference, *release);
  }
  co_return moved;
}

asio::awaitable<void> PoolTemplates::drop_old() {
  const std::uint64_t as_of = pools_.uses();
  const auto releases = co_await list_();
  if (releases)
    co_await pools_.retain(*releases, as_of);
  else
    log::warn("pool.templates_unreadable", {{"error", releases.error()}});
}

// Makes the base ahead of its first use as well. What could not be made is for the next create to try, or the next release.
asio::awaitable<void> PoolTemplates::make_ready(const std::string& reference, const tmpl::Release& release) {
  const WantedSize own{};
  const auto base = co_await bases_.base(release, own);
  if (base)
    pools_.keep(*base);
  else
    log::warn("pool.no_base", {{"template", reference}, {"error", base.error()}});
}

}  // namespace space::node
