#include "node/pools.h"

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>

#include "base/log.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Under steady load a create is nearly always under way; refilling then goes on all the same after this long.
constexpr milliseconds kLongestYield{250};
constexpr milliseconds kAfterFailure{2'000};
constexpr milliseconds kIdle{3'600'000};
constexpr milliseconds kUnused{60'000};

}  // namespace

bool same_base(const tmpl::Release& a, const tmpl::Release& b) {
  return a.digest == b.digest && a.image_digest == b.image_digest && a.kernel == b.kernel && a.initramfs == b.initramfs;
}

Pools::Pools(asio::any_io_executor executor, Machines& machines, PoolLimits limits)
    : executor_(executor), machines_(machines), limits_(limits), wake_(std::make_shared<Signal>(executor)) {
  if (limits_.spawned + limits_.ready == 0) return;
  filling_ = true;
  spawn(executor_, fill());
}

Pools::~Pools() { slots_->pools = nullptr; }

Pools::Foreground::Foreground(Pools& pools) : pools_(pools) {
  if (pools_.foreground_++ == 0) pools_.waiting_since_ = steady_clock::now();
}

Pools::Foreground::~Foreground() {
  if (--pools_.foreground_ == 0) pools_.wake_->notify_all();
}

Pools::Kind& Pools::kind_of(const std::shared_ptr<const tmpl::Base>& base) {
  auto found = kinds_.find(base->key);
  if (found == kinds_.end()) {
    if (kinds_.size() >= std::max<std::size_t>(limits_.kinds, 1)) {
      auto oldest = std::min_element(kinds_.begin(), kinds_.end(),
                                     [](const auto& a, const auto& b) { return a.second.last_use < b.second.last_use; });
      std::vector<Machine> left;
      for (auto* store : {&oldest->second.spawned, &oldest->second.ready})
        std::move(store->begin(), store->end(), std::back_inserter(left));
      kinds_.erase(oldest);
      spawn(executor_, discard(std::move(left)));
    }
    found = kinds_.emplace(base->key, Kind{}).first;
    found->second.base = base;
    found->second.number = ++kinds_made_;
    found->second.wanted = limits_.ready;
    found->second.counted_from = steady_clock::now();
  }
  found->second.last_use = ++uses_;
  wake_->notify_all();
  return found->second;
}

void Pools::keep(const std::shared_ptr<const tmpl::Base>& base) {
  if (!stopping_ && limits_.spawned + limits_.ready > 0) kind_of(base);
}

// What can be had without waiting.
std::optional<Pools::Taken> Pools::at_once(Kind& kind) {
  Taken taken;
  if (!kind.ready.empty()) {
    taken.machine = std::move(kind.ready.front());
    kind.ready.pop_front();
    taken.ready = true;
  } else {
    taken.slot = slot();
    if (!taken.slot) return std::nullopt;
    if (!kind.spawned.empty()) {
      taken.machine = std::move(kind.spawned.front());
      kind.spawned.pop_front();
    }
  }
  if (taken.machine) *taken.machine.on_end = nullptr;
  return taken;
}

asio::awaitable<Pools::Taken> Pools::take(std::shared_ptr<const tmpl::Base> base) {
  if (stopping_ || limits_.spawned + limits_.ready == 0) co_return Taken{};
  Kind& kind = kind_of(base);
  const bool hit = limits_.ready == 0 ? !kind.spawned.empty() : !kind.ready.empty();
  ++(hit ? kind.hits : kind.misses);
  std::optional<Taken> taken;
  if (waiting_.empty() || !kind.ready.empty()) taken = at_once(kind);
  kind.unused = std::min(kind.unused, kind.ready.size());
  if (kind.ready.empty()) raise(kind);
  if (taken) co_return std::move(*taken);

  // Whose create is given up while it waits leaves the queue, and a machine that it had been given goes.
  const auto waiting = std::make_shared<Waiting>(Waiting{base->key, Signal(executor_), std::nullopt});
  struct Leave {
    Pools& pools;
    std::shared_ptr<Waiting> waiting;
    ~Leave() {
      std::erase(pools.waiting_, waiting);
      if (!waiting->taken || !waiting->taken->machine) return;
      std::vector<Machine> unwanted;
      unwanted.push_back(std::move(waiting->taken->machine));
      spawn(pools.executor_, pools.discard(std::move(unwanted)));
    }
  };
  waiting_.push_back(waiting);
  const Leave leave{*this, waiting};
  for (const auto& weak : std::exchange(in_making_, {}))
    if (auto vm = weak.lock()) spawn(executor_, hurry(std::move(vm)));
  while (!waiting->taken) co_await waiting->signal.wait_for(kIdle);
  Taken got = std::move(*waiting->taken);
  waiting->taken.reset();
  co_return got;
}

void Pools::serve() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Waiting& waiting = **it;
    const auto kind = kinds_.find(waiting.key);
    if (stopping_ || kind == kinds_.end()) {
      waiting.taken = Taken{};
    } else {
      waiting.taken = at_once(kind->second);
    }
    if (!waiting.taken) {
      ++it;
      continue;
    }
    waiting.signal.notify_all();
    it = waiting_.erase(it);
  }
}

Pools::Slot Pools::slot() {
  if (slots_->used >= limits_.makers) return nullptr;
  ++slots_->used;
  return Slot(slots_.get(), [slots = slots_](void*) {
    --slots->used;
    if (!slots->pools) return;
    slots->pools->serve();
    slots->pools->wake_->notify_all();
  });
}

// By a half, because creates come in bursts: going up by ones would miss once for each.
void Pools::raise(Kind& kind) {
  kind.unused = 0;
  kind.wanted = std::max(kind.wanted, std::min(limits_.ready_most, kind.wanted + (kind.wanted + 1) / 2));
}

void Pools::give_back() {
  for (auto& [key, kind] : kinds_) {
    if (steady_clock::now() < kind.counted_from + kUnused) continue;
    kind.wanted = std::max(limits_.ready, kind.wanted - std::min(kind.wanted, (kind.unused + 1) / 2));
    std::vector<Machine> surplus;
    while (kind.ready.size() > kind.wanted) {
      *kind.ready.back().on_end = nullptr;
      surplus.push_back(std::move(kind.ready.back()));
      kind.ready.pop_back();
    }
    kind.unused = kind.ready.size();
    kind.counted_from = steady_clock::now();
    if (!surplus.empty()) spawn(executor_, discard(std::move(surplus)));
  }
}

asio::awaitable<void> Pools::forget(std::string template_digest) {
  const std::function<bool(const Kind&)> is_of_it = [template_digest](const Kind& kind) {
    return kind.base->release.digest == template_digest;
  };
  co_await drop(is_of_it);
}

asio::awaitable<void> Pools::retain(std::vector<tmpl::Release> releases, std::uint64_t as_of) {
  const std::function<bool(const Kind&)> is_old = [releases = std::move(releases), as_of](const Kind& kind) {
    const auto leads = [&kind](const tmpl::Release& release) { return same_base(release, kind.base->release); };
    return kind.last_use <= as_of && std::none_of(releases.begin(), releases.end(), leads);
  };
  co_await drop(is_old);
}

asio::awaitable<void> Pools::drop(std::function<bool(const Kind&)> which) {
  std::vector<Machine> left;
  for (auto it = kinds_.begin(); it != kinds_.end();) {
    if (!which(it->second)) {
      ++it;
      continue;
    }
    for (auto* store : {&it->second.spawned, &it->second.ready}) std::move(store->begin(), store->end(), std::back_inserter(left));
    log::info("pool.kind_dropped", {{"base", it->first}, {"template", it->second.base->release.digest}});
    it = kinds_.erase(it);
  }
  serve();  // who waits for one of them makes it
  co_await discard(std::move(left));
}

std::vector<PoolStats> Pools::stats() const {
  std::vector<PoolStats> all;
  for (const auto& [key, kind] : kinds_)
    all.push_back(
        {kind.base->release.digest, kind.base->size, kind.spawned.size(), kind.ready.size(), kind.wanted, kind.hits, kind.misses});
  return all;
}

// The kind that was used last among those that lack something: it is the one that the next create will ask for.
Pools::Kind* Pools::hungriest() {
  Kind* best = nullptr;
  for (auto& [key, kind] : kinds_) {
    if (kind.ready.size() + kind.making >= kind.wanted && kind.spawned.size() + kind.spawning >= limits_.spawned) continue;
    if (kind.not_before > steady_clock::now()) continue;
    if (!best || kind.last_use > best->last_use) best = &kind;
  }
  return best;
}

asio::awaitable<void> Pools::fill() {
  const auto wake = wake_;
  while (!stopping_) {
    Kind* next = hungriest();
    if (!next) {
      give_back();
      const bool grown = std::any_of(kinds_.begin(), kinds_.end(), [this](const auto& k) { return k.second.wanted > limits_.ready; });
      const bool waits_for_retry =
          std::any_of(kinds_.begin(), kinds_.end(), [](const auto& k) { return k.second.not_before > steady_clock::now(); });
      co_await wake->wait_for(waits_for_retry ? kAfterFailure : grown ? kUnused : kIdle);
      continue;
    }
    const bool urgent = next->ready.size() * 4 < next->wanted * 3;
    if (!urgent && foreground_ > 0) {
      const auto left = std::chrono::ceil<milliseconds>(waiting_since_ + kLongestYield - steady_clock::now());
      if (left.count() > 0) {
        co_await wake->wait_for(left);
        continue;
      }
      waiting_since_ = steady_clock::now();  // one machine now, then way is given again
    }
    Slot right = waiting_.empty() && (urgent || slots_->used == 0) ? slot() : nullptr;
    if (!right) {
      co_await wake->wait_for(kIdle);
      continue;
    }
    const bool ready = next->ready.size() + next->making < next->wanted;
    ++(ready ? next->making : next->spawning);
    ++fills_;
    spawn(executor_, fill_one(next->base->key, next->number, ready, std::move(right)));
  }
  while (fills_ > 0) co_await wake->wait_for(kIdle);
  filling_ = false;
  wake->notify_all();
}

asio::awaitable<void> Pools::fill_one(std::string key, std::uint64_t number, bool ready, Slot right) {
  Result<Machine> made = fail(ErrorKind::not_found, "template_gone", "its template is gone");
  if (kinds_.contains(key)) made = co_await make(key, ready);
  --fills_;
  const auto kind = kinds_.find(key);
  if (kind != kinds_.end()) {
    if (kind->second.number == number) --(ready ? kind->second.making : kind->second.spawning);
    kind->second.failed = !made;
  }
  if (!made && kind != kinds_.end() && !stopping_) {
    log::warn("pool.fill_failed", {{"base", key}, {"error", made.error()}});
    kind->second.not_before = steady_clock::now() + kAfterFailure;
  }
  if (made && (stopping_ || kind == kinds_.end() || made->vm->state() == vmm::VmState::ended)) {
    std::vector<Machine> unwanted;
    unwanted.push_back(std::move(*made));
    co_await discard(std::move(unwanted));
  } else if (made) {
    watch(*made);
    (ready ? kind->second.ready : kind->second.spawned).push_back(std::move(*made));
    serve();
  }
  right.reset();
  wake_->notify_all();
}

// A ready machine is made from a spawned one when there is one, which shortens what a create might wait for.
asio::awaitable<Result<Machine>> Pools::make(std::string key, bool ready) {
  Spans unused(system_clock());
  const auto base = kinds_.at(key).base;
  Machine machine;
  if (auto& spawned = kinds_.at(key).spawned; ready && !spawned.empty()) {
    machine = std::move(spawned.front());
    spawned.pop_front();
    *machine.on_end = nullptr;
  } else {
    auto fresh = co_await machines_.spawn(base, unused, waiting_.empty());
    if (!fresh) co_return tl::unexpected(std::move(fresh).error());
    machine = std::move(*fresh);
  }
  if (!ready) co_return machine;
  if (const auto kind = kinds_.find(key); kind != kinds_.end()) begun(machine, kind->second);
  auto done = co_await machines_.load(machine, unused);
  if (done) {
    // A guest may take long for its first command; a node that is being stopped has no time for that.
    using namespace asio::experimental::awaitable_operators;
    auto first = co_await (machines_.warm(machine) || stopped());
    done = fail(ErrorKind::unavailable, "node_stopping", "the node is being stopped");
    if (first.index() == 0) done = std::get<0>(std::move(first));
  }
  if (done) co_return machine;
  std::vector<Machine> broken;
  broken.push_back(std::move(machine));
  co_await discard(std::move(broken));
  co_return tl::unexpected(std::move(done).error());
}

void Pools::begun(const Machine& machine, const Kind& kind) {
  std::erase_if(in_making_, [](const auto& weak) { return weak.expired(); });
  if (waiting_.empty() && !kind.failed)
    in_making_.push_back(machine.vm);
  else
    spawn(executor_, hurry(machine.vm));
}

asio::awaitable<void> Pools::stopped() {
  const auto wake = wake_;
  while (!stopping_) co_await wake->wait_for(kIdle);
}

void Pools::watch(Machine& machine) {
  *machine.on_end = [this, id = machine.id] { lost(id); };
}

void Pools::lost(const std::string& vm_id) {
  for (auto& [key, kind] : kinds_) {
    for (auto* store : {&kind.spawned, &kind.ready}) {
      const auto it = std::find_if(store->begin(), store->end(), [&](const Machine& m) { return m.id == vm_id; });
      if (it == store->end()) continue;
      log::warn("pool.machine_died", {{"vm", vm_id}});
      std::vector<Machine> dead;
      dead.push_back(std::move(*it));
      store->erase(it);
      kind.not_before = steady_clock::now() + kAfterFailure;  // machines that die by themselves are not made in a tight loop
      spawn(executor_, discard(std::move(dead)));
      wake_->notify_all();
      return;
    }
  }
}

asio::awaitable<void> Pools::discard(std::vector<Machine> machines) {
  ++discarding_;
  for (Machine& machine : machines) {
    const std::string id = machine.id;
    auto gone = co_await machines_.destroy(std::move(machine));
    if (!gone) log::error("pool.destroy_failed", {{"vm", id}, {"error", gone.error()}});
  }
  --discarding_;
  wake_->notify_all();
}

void Pools::stop() {
  stopping_ = true;
  serve();
  wake_->notify_all();
}

asio::awaitable<void> Pools::drain() {
  stop();
  while (filling_) co_await wake_->wait_for(kIdle);
  std::vector<Machine> left;
  for (auto& [key, kind] : kinds_)
    for (auto* store : {&kind.spawned, &kind.ready}) std::move(store->begin(), store->end(), std::back_inserter(left));
  kinds_.clear();
  co_await discard(std::move(left));
  while (discarding_ > 0) co_await wake_->wait_for(kIdle);
}

}  // namespace space::node
