#include "template/base_images.h"

#include <fmt/format.h>
#include <map>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "template/base_files.h"
#include "template/base_maker.h"
#include "template/base_upkeep.h"

namespace space::tmpl {

using BasePtr = std::shared_ptr<const Base>;

// One base on its way, shared by everybody who waits for it.
struct Making {
  Making(asio::any_io_executor executor, std::string of_release, const vmm::Size& of_size)
      : changed(std::move(executor)), release_digest(std::move(of_release)), size(of_size) {}
  Signal changed;
  const std::string release_digest;
  const vmm::Size size;
  std::shared_ptr<MakingProgress> progress = std::make_shared<MakingProgress>();
  std::optional<Result<BasePtr>> outcome;
};

struct Failure {
  std::string release_digest;
  vmm::Size size;
  Error error;
};

struct BaseImages::State {
  std::filesystem::path root;
  vmm::Driver& driver;
  BlockingPool& pool;
  bool swept = false;
  bool stopping = false;
  std::shared_ptr<Stop> stop;               // of what is being made; made with the first of it
  std::map<std::string, std::string> keys;  // of what was asked before → base key
  std::map<std::string, BasePtr> ready;
  std::map<std::string, std::shared_ptr<Making>> making;
  std::map<std::string, Failure> failed;
  std::multiset<std::string> opening;  // keys that find() reads from the disk just now

  // Hashing the kernel takes 50 ms, so it is done once for each pair of files; releases name them by version and content.
  static Task<std::string> key_of(std::shared_ptr<State> self, const Release& release, const vmm::Size& size) {
    const std::string state_key = self->driver.state_key();
    const std::string question = fmt::format("{} {} {} {} {} {} {} {}", release.digest, release.image_digest, release.kernel.string(),
                                             release.initramfs.string(), size.cpus, size.memory_mib, size.disk_mib, state_key);
    if (auto it = self->keys.find(question); it != self->keys.end()) co_return it->second;
    auto compute = [&release, &size, &state_key] { return base_key(release, size, state_key); };
    CO_TRY(std::string key, co_await self->pool.run(compute));
    self->keys[question] = key;
    co_return key;
  }

  static Task<BasePtr> find_or_make(std::shared_ptr<State> self, std::string key, Release release, vmm::Size size,
                                    std::shared_ptr<MakingProgress> progress) {
    const std::filesystem::path root = self->root;
    if (!std::exchange(self->swept, true)) {
      auto sweep = [root] { return sweep_interrupted(root); };
      CO_TRY_VOID(co_await self->pool.run(sweep));
    }
    auto open = [root, key, release, size] { return open_base(root, key, release, std::optional(size)); };
    auto claim = [root, key] { return BaseClaim::take(root, key); };
    for (;;) {
      auto found = co_await self->pool.run(open);
      if (found || found.error().kind == ErrorKind::corrupt || found.error().code == "base_not_found") {
        if (found) co_return found;
        if (found.error().kind == ErrorKind::corrupt) log::error("base.corrupt", {{"key", key}, {"error", found.error()}});
      } else {
        co_return found;
      }
      if (self->stopping) co_return fail(node_stopping());
      CO_TRY(std::optional<BaseClaim> mine, co_await self->pool.run(claim));
      if (!mine) {
        co_await sleep_for(std::chrono::milliseconds(200));  // another process makes it; a lock on a file cannot be awaited
        continue;
      }
      CO_TRY_VOID(co_await make(self, *mine, key, release, size, progress));
    }
  }

  static Task<> make(std::shared_ptr<State> self, BaseClaim& claim, const std::string& key, const Release& release, const vmm::Size& size,
                     std::shared_ptr<MakingProgress> progress) {
    const auto start = std::chrono::steady_clock::now();
    log::info("base.making", {{"key", key}, {"template", label_of(release)}, {"memory_mib", static_cast<std::int64_t>(size.memory_mib)}});
    BaseOrder order{key, release, size, claim.folder()};
    auto made = co_await make_base(self->driver, self->pool, std::move(order), self->stop, progress);
    auto finish = [&claim, &made]() -> Result<> {
      if (made) return claim.publish();
      claim.abandon();
      return std::move(made);
    };
    CO_TRY_VOID(co_await self->pool.run(finish));
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start).count();
    log::info("base.made", {{"key", key}, {"ms", static_cast<std::int64_t>(ms)}});
    co_return Result<>{};
  }

  // Nobody's own: whoever asked first may go away, and the others still get their base.
  static asio::awaitable<void> run(std::shared_ptr<State> self, std::shared_ptr<Making> task, std::string key, Release release,
                                   vmm::Size size) {
    const std::string digest = release.digest;
    auto outcome = co_await find_or_make(self, key, std::move(release), size, task->progress);
    self->failed.erase(key);
    if (outcome)
      self->ready[key] = *outcome;
    else if (!self->stopping)
      self->failed[key] = Failure{digest, size, outcome.error()};
    self->making.erase(key);
    task->outcome = std::move(outcome);
    task->changed.notify_all();
  }
};

BaseImages::BaseImages(std::filesystem::path root, vmm::Driver& driver, BlockingPool& pool)
    : state_(std::make_shared<State>(State{std::move(root), driver, pool, false, false, {}, {}, {}, {}, {}, {}})) {}
BaseImages::~BaseImages() = default;

asio::awaitable<void> BaseImages::stop() {
  auto state = state_;
  state->stopping = true;
  if (state->stop) state->stop->ask();
  while (!state->making.empty()) co_await sleep_for(std::chrono::milliseconds(20));
}

Task<BasePtr> BaseImages::get(const Release& release, const vmm::Size& size) {
  auto state = state_;
  CO_TRY(std::string key, co_await State::key_of(state, release, size));
  if (auto it = state->ready.find(key); it != state->ready.end()) co_return it->second;
  if (state->stopping) co_return fail(node_stopping());
  auto executor = co_await asio::this_coro::executor;
  if (!state->stop) state->stop = std::make_shared<Stop>(executor);
  auto& slot = state->making[key];
  if (!slot) {
    slot = std::make_shared<Making>(executor, release.digest, size);
    space::spawn(executor, State::run(state, slot, key, release, size));
  }
  auto task = slot;
  while (!task->outcome) co_await task->changed.wait();
  co_return *task->outcome;
}

Task<BasePtr> BaseImages::find(std::string key, Release release) {
  auto state = state_;
  if (auto it = state->ready.find(key); it != state->ready.end()) co_return it->second;
  const auto place = state->opening.insert(key);
  const std::filesystem::path root = state->root;
  auto open = [root, key, release] { return open_base(root, key, release, std::nullopt); };
  auto found = co_await state->pool.run(open);
  state->opening.erase(place);
  if (!found) co_return found;
  co_return state->ready.emplace(key, *found).first->second;
}

std::string_view to_string(BaseStatus::State state) {
  switch (state) {
    case BaseStatus::State::none:
      return "none";
    case BaseStatus::State::making:
      return "making";
    case BaseStatus::State::ready:
      return "ready";
    case BaseStatus::State::failed:
      return "failed";
  }
  return "";
}

Task<std::vector<BaseStatus>> BaseImages::status(Release release) {
  using S = BaseStatus::State;
  auto state = state_;
  std::vector<BaseStatus> all(1);
  all[0].size = {release.cpus, release.memory_mib, release.disk_mib};
  const auto of_size = [&all](const vmm::Size& size) -> BaseStatus& {
    for (BaseStatus& one : all)
      if (one.size == size) return one;
    BaseStatus one;
    one.size = size;
    return all.emplace_back(std::move(one));
  };
  const std::filesystem::path root = state->root;
  auto list = [root] { return stored_bases(root); };
  CO_TRY(const auto stored, co_await state->pool.run(list));
  for (const StoredBase& one : stored) {
    if (one.release_digest != release.digest) continue;
    CO_TRY(const std::string key, co_await State::key_of(state, release, one.size));
    if (key == one.key) of_size(one.size).state = S::ready;
  }
  for (const auto& [key, failure] : state->failed) {
    if (failure.release_digest != release.digest) continue;
    BaseStatus& one = of_size(failure.size);
    if (one.state == S::none) one.state = S::failed;
    one.error = failure.error;
  }
  for (const auto& [key, making] : state->making) {
    if (making->release_digest != release.digest) continue;
    BaseStatus& one = of_size(making->size);
    if (one.state == S::ready) continue;  // it is being read
    one.state = S::making;
    one.step = making->progress->step;
    one.done = making->progress->done;
    one.of = making->progress->of;
  }
  co_return all;
}

Task<std::vector<std::string>> BaseImages::prune(std::set<std::string> needed, std::vector<Release> releases) {
  auto state = state_;
  CurrentBases current;
  current.as_of_ms = system_clock().wall_ms();
  const std::filesystem::path root = state->root;
  auto list = [root] { return stored_bases(root); };
  CO_TRY(const auto stored, co_await state->pool.run(list));
  for (const StoredBase& one : stored)
    for (const Release& release : releases) {
      if (release.digest != one.release_digest) continue;
      auto key = co_await State::key_of(state, release, one.size);
      if (!key || *key == one.key) current.keys.insert(one.key);  // who cannot tell, keeps
    }
  auto write = [root, current] { return write_current(root, current); };
  CO_TRY_VOID(co_await state->pool.run(write));
  // In memory alone, for nobody: its memory is worth more than the time to read it again.
  std::erase_if(state->ready, [&](const auto& entry) { return entry.second.use_count() == 1 && !current.keys.contains(entry.first); });
  std::vector<std::string> removed;
  for (const StoredBase& one : stored) {
    if (!is_unneeded(one, current, needed) || state->ready.contains(one.key) || state->opening.contains(one.key) ||
        state->making.contains(one.key))
      continue;
    const std::string key = one.key;
    auto remove = [root, key] { return remove_base(root, key); };
    CO_TRY_VOID(co_await state->pool.run(remove));
    log::info("base.removed", {{"key", key}, {"template", one.release_name}, {"bytes", static_cast<std::int64_t>(one.bytes)}});
    removed.push_back(key);
  }
  co_return removed;
}

Task<std::unique_ptr<vmm::Vm>> BaseImages::spawn(const Base& base, const std::string& vm_id, Fd overlay, bool ahead) {
  vmm::VmSpec spec;
  spec.id = vm_id;
  spec.size = base.size;
  spec.images = &base.images;
  CO_TRY(spec.memory, base.memory.duplicate());
  for (const vmm::DiskLayer& layer : base.disk) {
    CO_TRY(Fd file, layer.file.duplicate());
    spec.disk.push_back({std::move(file), layer.format, layer.read_only});
  }
  spec.disk.push_back({std::move(overlay), vmm::DiskLayer::Format::qcow2, false});
  spec.ahead = ahead;
  co_return co_await state_->driver.spawn(std::move(spec));
}

Task<> BaseImages::load(const Base& base, vmm::Vm& vm) { co_return co_await vm.load(base.state); }

}  // namespace space::tmpl
