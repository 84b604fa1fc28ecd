#include "template/base_images.h"

#include <fmt/format.h>
#include <map>

#include "base/file.h"
#include "base/log.h"
#include "template/base_files.h"
#include "template/base_maker.h"

namespace space::tmpl {

using BasePtr = std::shared_ptr<const Base>;

// One base on its way, shared by everybody who waits for it.
struct Making {
  explicit Making(asio::any_io_executor executor) : changed(std::move(executor)) {}
  Signal changed;
  std::optional<Result<BasePtr>> outcome;
};

struct BaseImages::State {
  std::filesystem::path root;
  vmm::Driver& driver;
  BlockingPool& pool;
  bool swept = false;
  bool stopping = false;
  std::shared_ptr<Stop> stop;  // of what is being made; made with the first of it
  std::map<std::string, std::string> keys;  // of what was asked before → base key
  std::map<std::string, BasePtr> ready;
  std::map<std::string, std::shared_ptr<Making>> making;

  // Hashing the kernel takes 50 ms, so it is done once for each pair of files; releases name them by version and content.
  static Task<std::string> key_of(std::shared_ptr<State> self, const Release& release, const vmm::Size& size) {
    const std::string state_key = self->driver.state_key();
    const std::string question = fmt::format("{} {} {} {} {} {} {} {}", release.digest, release.image_digest, release.kernel.string(), release.initramfs.string(),
                                             size.cpus, size.memory_mib, size.disk_mib, state_key);
    if (auto it = self->keys.find(question); it != self->keys.end()) co_return it->second;
    auto compute = [&release, &size, &state_key] { return base_key(release, size, state_key); };
    CO_TRY(std::string key, co_await self->pool.run(compute));
    self->keys[question] = key;
    co_return key;
  }

  static Task<BasePtr> find_or_make(std::shared_ptr<State> self, std::string key, Release release, vmm::Size size) {
    const std::filesystem::path root = self->root;
    if (!std::exchange(self->swept, true)) {
      auto sweep = [root] { return sweep_interrupted(root); };
      CO_TRY_VOID(co_await self->pool.run(sweep));
    }
    auto open = [root, key, release, size] { return open_base(root, key, release, size); };
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
      CO_TRY_VOID(co_await make(self, *mine, key, release, size));
    }
  }

  static Task<> make(std::shared_ptr<State> self, BaseClaim& claim, const std::string& key, const Release& release, const vmm::Size& size) {
    const auto start = std::chrono::steady_clock::now();
    log::info("base.making", {{"key", key}, {"template", release.name + ":" + release.tag}, {"memory_mib", static_cast<std::int64_t>(size.memory_mib)}});
    BaseOrder order{key, release, size, claim.folder()};
    auto made = co_await make_base(self->driver, self->pool, std::move(order), self->stop);
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
  static asio::awaitable<void> run(std::shared_ptr<State> self, std::shared_ptr<Making> task, std::string key, Release release, vmm::Size size) {
    auto outcome = co_await find_or_make(self, key, std::move(release), size);
    if (outcome) self->ready[key] = *outcome;
    self->making.erase(key);
    task->outcome = std::move(outcome);
    task->changed.notify_all();
  }
};

BaseImages::BaseImages(std::filesystem::path root, vmm::Driver& driver, BlockingPool& pool)
    : state_(std::make_shared<State>(State{std::move(root), driver, pool, false, false, {}, {}, {}, {}})) {}
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
    slot = std::make_shared<Making>(executor);
    space::spawn(executor, State::run(state, slot, key, release, size));
  }
  auto task = slot;
  while (!task->outcome) co_await task->changed.wait();
  co_return *task->outcome;
}

Task<std::unique_ptr<vmm::Vm>> BaseImages::spawn(const Base& base, const std::string& vm_id, Fd overlay) {
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
  co_return co_await state_->driver.spawn(std::move(spec));
}

Task<> BaseImages::load(const Base& base, vmm::Vm& vm) { co_return co_await vm.load(base.state); }

}  // namespace space::tmpl
