#include "node/sandboxes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/file.h"
#include "node/recovery.h"
#include "node/testing.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using namespace testing;  // NOLINT

class FakeBases : public BaseSource {
 public:
  Task<tmpl::Release> resolve(const std::string& reference) override {
    if (reference != "base" && !reference.empty() && !reference.starts_with("sha256:"))
      co_return fail(ErrorKind::not_found, "template_not_found", "no such template");
    co_return tmpl::Release{};
  }
  Task<std::shared_ptr<const tmpl::Base>> base(const tmpl::Release&, const WantedSize&) override {
    co_await sleep_for(making_);
    co_return base_;
  }
  std::shared_ptr<const tmpl::Base> base_ = base_named("a");
  milliseconds making_{0};
};

class FakeDriver : public vmm::Driver {
 public:
  explicit FakeDriver(FakeMachines& machines) : machines_(machines) {}
  std::string name() const override { return "fake"; }
  std::string accelerator() const override { return "none"; }
  std::string state_key() const override { return ""; }
  Task<std::unique_ptr<vmm::Vm>> spawn(vmm::VmSpec) override { co_return fail(ErrorKind::unsupported, "fake", ""); }
  Task<std::unique_ptr<vmm::Vm>> adopt(const std::string&) override { co_return fail(ErrorKind::unsupported, "fake", ""); }
  Task<std::vector<std::string>> list() override { co_return std::vector<std::string>(machines_.alive_.begin(), machines_.alive_.end()); }
  Task<> sweep(const std::string& id) override {
    machines_.alive_.erase(id);
    co_return Result<>{};
  }
  Task<> merge_generations(vmm::DiskMerge) override { co_return Result<>{}; }

 private:
  FakeMachines& machines_;
};

// A node without VMs and HTTP. `restart` is a kill -9: what was in memory is gone, folders and VMs stay.
struct World {
  explicit World(asio::any_io_executor e) : executor(e) { restart(); }
  void restart() {
    sandboxes.reset();
    pools.reset();
    events.emplace(executor);
    pools.emplace(executor, machines, PoolLimits{});
    const Sandboxes::Parts p{machines, bases, *pools, records, disk, *events, system_clock(), *vault, std::string(64, 'b')};
    parts.emplace(p);
    sandboxes.emplace(executor, p, 3);
  }
  asio::any_io_executor executor;
  TempDir dir = TempDir::make("/tmp", "space-sandboxes-test").value();
  RecordStore records{dir.path()};
  BlockingPool disk{2};
  std::unique_ptr<Vault> vault = vault_in(dir.path());
  FakeMachines machines{&records};
  FakeBases bases;
  FakeDriver driver{machines};
  std::optional<Events> events;
  std::optional<Pools> pools;
  std::optional<Sandboxes::Parts> parts;
  std::optional<Sandboxes> sandboxes;

  CreateRequest request(std::string id = new_id(), std::string operation = "op1") const {
    CreateRequest r;
    r.id = std::move(id);
    r.operation = std::move(operation);
    r.tenant = "acme";
    r.template_reference = "base";
    r.env = {{"A", "1"}};
    return r;
  }
  std::size_t folders() const {
    return records.sandboxes().value().size() + records.pool().value().size() + records.trash().value().size();
  }
};

struct SandboxesTest : ::testing::Test {
  asio::io_context loop;
  void run(asio::awaitable<void> (*test)(World&)) {
    World world(loop.get_executor());
    ASSERT_TRUE(world.records.open());
    bool finished = false;
    asio::co_spawn(
        loop,
        [](World& w, auto body, bool& done) -> asio::awaitable<void> {
          co_await body(w);
          done = true;
        }(world, test, finished),
        [](std::exception_ptr e) {
          if (e) std::rethrow_exception(e);
        });
    while (!finished && loop.run_one() > 0) {
    }
    loop.stop();
  }
};

TEST_F(SandboxesTest, ACreateIsDurableBeforeItIsAnswered) {
  run([](World& w) -> asio::awaitable<void> {
    const CreateRequest request = w.request();
    const auto done = co_await w.sandboxes->create(request);
    EXPECT_TRUE(done);
    if (!done) co_return;
    EXPECT_EQ(done->record.state, SandboxState::running);
    EXPECT_FALSE(done->spans.empty());
    const auto stored = w.records.sandboxes().value();
    EXPECT_EQ(stored.at(0).record.value().vm, done->record.vm);
    EXPECT_EQ(stored.at(0).record.value().state, SandboxState::running);
    EXPECT_EQ(w.machines.identities_.at(done->record.vm).sandbox, request.id);
    EXPECT_EQ(w.machines.identities_.at(done->record.vm).env.at("A"), "1");
    EXPECT_EQ(w.folders(), 1u);
  });
}

TEST_F(SandboxesTest, TheSamePutTwiceAlsoAtTheSameTimeIsOneSandbox) {
  run([](World& w) -> asio::awaitable<void> {
    using namespace asio::experimental::awaitable_operators;
    const CreateRequest request = w.request();
    auto [a, b] = co_await (w.sandboxes->create(request) && w.sandboxes->create(request));
    EXPECT_TRUE(a && b);
    EXPECT_EQ(a->record.vm, b->record.vm);
    const auto again = co_await w.sandboxes->create(request);
    EXPECT_EQ(again->record.vm, a->record.vm);
    EXPECT_EQ(w.machines.alive_.size(), 1u);
    const auto other = co_await w.sandboxes->create(w.request(request.id, "op2"));
    EXPECT_EQ(other.error().code, "sandbox_exists");
  });
}

TEST_F(SandboxesTest, ADeleteTakesEverythingAndMayComeTwice) {
  run([](World& w) -> asio::awaitable<void> {
    using namespace asio::experimental::awaitable_operators;
    const CreateRequest request = w.request();
    EXPECT_TRUE(co_await w.sandboxes->create(request));
    auto [a, b] = co_await (w.sandboxes->remove(request.id, "d1") && w.sandboxes->remove(request.id, "d2"));
    EXPECT_TRUE(a && b);
    EXPECT_TRUE(co_await w.sandboxes->remove(request.id, "d3"));
    EXPECT_TRUE(w.machines.alive_.empty());
    EXPECT_EQ(w.folders(), 0u);
    EXPECT_TRUE(w.sandboxes->list().empty());
  });
}

TEST_F(SandboxesTest, ADeleteDuringACreateLeavesNothingAtAnyStep) {
  run([](World& w) -> asio::awaitable<void> {
    using namespace asio::experimental::awaitable_operators;
    w.machines.step_ = milliseconds(4);
    for (int at = 0; at < 20; at += 2) {
      const CreateRequest request = w.request();
      auto late = [](World& world, std::string id, int wait) -> Task<std::vector<Span>> {
        co_await sleep_for(milliseconds(wait));
        co_return co_await world.sandboxes->remove(id, "d");
      };
      auto [created, removed] = co_await (w.sandboxes->create(request) && late(w, request.id, at));
      EXPECT_TRUE(removed);
      if (!created) {
        EXPECT_EQ(created.error().code, "sandbox_deleted");
      }
      EXPECT_TRUE(w.machines.alive_.empty()) << at;
      EXPECT_EQ(w.folders(), 0u) << at;
      EXPECT_EQ(w.sandboxes->find(request.id), nullptr);
    }
  });
}

TEST_F(SandboxesTest, ADeleteDoesNotWaitForABaseToBeMade) {
  run([](World& w) -> asio::awaitable<void> {
    using namespace asio::experimental::awaitable_operators;
    w.bases.making_ = milliseconds(2'000);
    const CreateRequest request = w.request();
    const auto begin = std::chrono::steady_clock::now();
    auto late = [](World& world, std::string id) -> Task<std::vector<Span>> {
      co_await sleep_for(milliseconds(10));
      co_return co_await world.sandboxes->remove(id, "d");
    };
    auto [created, removed] = co_await (w.sandboxes->create(request) && late(w, request.id));
    EXPECT_EQ(created.error().code, "sandbox_deleted");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(1'000));
  });
}

TEST_F(SandboxesTest, ACreateBehindItsDeleteDoesNotComeBack) {
  run([](World& w) -> asio::awaitable<void> {
    const CreateRequest request = w.request();
    EXPECT_TRUE(co_await w.sandboxes->remove(request.id, "d"));
    EXPECT_EQ((co_await w.sandboxes->create(request)).error().code, "sandbox_deleted");
  });
}

TEST_F(SandboxesTest, AStepThatFailsLeavesNothing) {
  run([](World& w) -> asio::awaitable<void> {
    for (const char* step : {"spawn", "load", "activate"}) {
      w.machines.failing_[step] = 1;
      const CreateRequest request = w.request();
      const auto failed = co_await w.sandboxes->create(request);
      EXPECT_EQ(failed.error().code, std::string(step) + "_failed");
      EXPECT_TRUE(w.machines.alive_.empty()) << step;
      EXPECT_EQ(w.folders(), 0u) << step;
      EXPECT_TRUE(co_await w.sandboxes->create(request)) << "a later try may succeed";
      EXPECT_TRUE(co_await w.sandboxes->remove(request.id, "d"));
    }
    CreateRequest unknown = w.request();
    unknown.template_reference = "nothing";
    EXPECT_EQ((co_await w.sandboxes->create(unknown)).error().code, "template_not_found");
    EXPECT_EQ(w.folders(), 0u);
  });
}

TEST_F(SandboxesTest, ADeleteThatFailsCanBeRepeated) {
  run([](World& w) -> asio::awaitable<void> {
    const CreateRequest request = w.request();
    EXPECT_TRUE(co_await w.sandboxes->create(request));
    w.machines.failing_["destroy"] = 1;
    EXPECT_FALSE(co_await w.sandboxes->remove(request.id, "d"));
    EXPECT_EQ(w.sandboxes->find(request.id)->record.state, SandboxState::deleting);
    EXPECT_EQ((co_await w.sandboxes->pause(request.id, "p")).error().kind, ErrorKind::not_found);
    EXPECT_TRUE(co_await w.sandboxes->remove(request.id, "d"));
    EXPECT_EQ(w.folders(), 0u);
  });
}

TEST_F(SandboxesTest, AFullNodeSaysSo) {
  run([](World& w) -> asio::awaitable<void> {
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(co_await w.sandboxes->create(w.request()));
    const auto refused = co_await w.sandboxes->create(w.request());
    EXPECT_EQ(refused.error().code, "node_full");
    EXPECT_EQ(refused.error().kind, ErrorKind::resource_exhausted);
  });
}

TEST_F(SandboxesTest, PauseAndResumeFollowTheTable) {
  run([](World& w) -> asio::awaitable<void> {
    const CreateRequest request = w.request();
    EXPECT_TRUE(co_await w.sandboxes->create(request));
    EXPECT_EQ((co_await w.sandboxes->resume(request.id, "r0")).error().code, "sandbox_running");
    EXPECT_EQ((co_await w.sandboxes->pause(request.id, "p1"))->record.state, SandboxState::paused);
    EXPECT_EQ(w.records.sandboxes().value().at(0).record->state, SandboxState::paused);
    EXPECT_TRUE(co_await w.sandboxes->pause(request.id, "p1")) << "the same operation again";
    EXPECT_EQ((co_await w.sandboxes->pause(request.id, "p2")).error().code, "sandbox_paused");
    EXPECT_EQ(w.sandboxes->find(request.id)->agent().error().code, "sandbox_paused");
    EXPECT_EQ((co_await w.sandboxes->resume(request.id, "r1"))->record.state, SandboxState::running);
    EXPECT_EQ(w.records.sandboxes().value().at(0).record->state, SandboxState::running);
    EXPECT_EQ((co_await w.sandboxes->pause(new_id(), "p")).error().code, "sandbox_not_found");
    w.machines.failing_["pause"] = 1;
    EXPECT_FALSE(co_await w.sandboxes->pause(request.id, "p3"));
    EXPECT_EQ(w.sandboxes->find(request.id)->record.state, SandboxState::running);
  });
}

TEST_F(SandboxesTest, AVmmThatDiesEndsItsSandboxAndTellsWhy) {
  run([](World& w) -> asio::awaitable<void> {
    const CreateRequest request = w.request();
    EXPECT_TRUE(co_await w.sandboxes->create(request));
    Events::Listener listener(*w.events);
    w.machines.kill(w.sandboxes->find(request.id)->machine);
    const auto event = co_await listener.next_for(milliseconds(2'000));
    EXPECT_TRUE(event && event->sandbox == request.id && event->type == "sandbox_ended");
    EXPECT_EQ(w.sandboxes->find(request.id)->record.end_reason, "vmm_exited");
    EXPECT_EQ(w.records.sandboxes().value().at(0).record->state, SandboxState::ended);
    EXPECT_TRUE(w.machines.alive_.empty());
    EXPECT_EQ(w.sandboxes->find(request.id)->agent().error().code, "sandbox_ended");
    EXPECT_TRUE(co_await w.sandboxes->remove(request.id, "d"));
    EXPECT_EQ(w.folders(), 0u);
  });
}

TEST_F(SandboxesTest, ARestartAdoptsWhatRunsAndEndsWhatDoesNot) {
  run([](World& w) -> asio::awaitable<void> {
    const auto runs = co_await w.sandboxes->create(w.request());
    const auto rests = co_await w.sandboxes->create(w.request());
    const auto dies = co_await w.sandboxes->create(w.request());
    EXPECT_TRUE(co_await w.sandboxes->pause(rests->record.id, "p"));
    w.machines.states_[rests->record.vm] = vmm::VmState::paused;
    w.machines.alive_.erase(dies->record.vm);
    w.machines.identities_.clear();
    w.restart();
    const auto counts = co_await recover(*w.sandboxes, *w.parts, w.driver);
    EXPECT_EQ(counts->adopted, 2u);
    EXPECT_EQ(counts->ended, 1u);
    EXPECT_EQ(w.sandboxes->find(runs->record.id)->record.state, SandboxState::running);
    co_await until([&] { return w.machines.identities_.contains(runs->record.vm); });  // clock and thaw again
    EXPECT_EQ(w.sandboxes->find(rests->record.id)->record.state, SandboxState::paused);
    EXPECT_FALSE(w.machines.identities_.contains(rests->record.vm));
    EXPECT_EQ(w.sandboxes->find(dies->record.id)->record.state, SandboxState::ended);
    EXPECT_EQ(w.sandboxes->find(dies->record.id)->record.end_reason, "vmm_gone");
    EXPECT_EQ(w.records.sandboxes().value().size(), 3u);
    EXPECT_TRUE(co_await w.sandboxes->resume(rests->record.id, "r"));
  });
}

TEST_F(SandboxesTest, ARestartBetweenAPauseAndItsRecordKeepsWhatWasPromised) {
  run([](World& w) -> asio::awaitable<void> {
    const auto one = co_await w.sandboxes->create(w.request());
    w.machines.states_[one->record.vm] = vmm::VmState::paused;  // paused, but the record still says running
    w.machines.identities_.clear();
    w.restart();
    EXPECT_TRUE(co_await recover(*w.sandboxes, *w.parts, w.driver));
    co_await until([&] { return w.machines.identities_.contains(one->record.vm); });
    EXPECT_EQ(w.sandboxes->find(one->record.id)->machine.vm->state(), vmm::VmState::running);
  });
}

TEST_F(SandboxesTest, ARestartFinishesDeletesAndSweepsLeftovers) {
  run([](World& w) -> asio::awaitable<void> {
    const auto half = co_await w.sandboxes->create(w.request());
    EXPECT_TRUE(w.records.discard(half->record.id));  // a delete that was cut off after its first step
    Spans spans(system_clock());
    EXPECT_TRUE(co_await w.machines.spawn(w.bases.base_, spans, true));  // a pooled VM
    const std::string broken = new_id();
    EXPECT_TRUE(make_directories(w.dir.path() / "sandboxes" / broken));
    w.restart();
    const auto counts = co_await recover(*w.sandboxes, *w.parts, w.driver);
    EXPECT_EQ(counts->removed, 1u);
    EXPECT_EQ(counts->leftovers.size(), 1u);
    co_await sweep_leftovers(counts->leftovers, w.records, w.disk, w.driver);
    EXPECT_TRUE(w.machines.alive_.empty());
    EXPECT_EQ(w.folders(), 1u);
    EXPECT_EQ(w.sandboxes->find(broken)->record.end_reason, "record_unreadable");
    EXPECT_TRUE(co_await w.sandboxes->remove(broken, "d"));
    EXPECT_EQ(w.folders(), 0u);
  });
}

TEST_F(SandboxesTest, SettingsOfOneThatRestsAreThereWhenItGoesOn) {
  run([](World& w) -> asio::awaitable<void> {
    CreateRequest request = w.request();
    request.env = {{"A", "1"}, {"B", "1"}};
    const std::string id = request.id;
    EXPECT_TRUE(co_await w.sandboxes->create(std::move(request)));
    EXPECT_TRUE(co_await w.sandboxes->pause(id, "op2"));
    SandboxChanges changes;
    changes.env = {{"A", "2"}, {"B", std::nullopt}, {"C", "3"}};
    const auto changed = co_await w.sandboxes->update(id, "op3", changes);
    EXPECT_TRUE(changed);
    if (!changed) co_return;
    EXPECT_EQ(changed->record.state, SandboxState::paused);
    const std::map<std::string, std::string> now{{"A", "2"}, {"C", "3"}};
    EXPECT_EQ(w.records.sandboxes().value().at(0).record.value().env, now) << "durable when it is answered";
    const auto resumed = co_await w.sandboxes->resume(id, "op4");
    EXPECT_TRUE(resumed);
    EXPECT_EQ(w.machines.identities_.at(resumed->record.vm).env, now);
  });
}

TEST_F(SandboxesTest, ASizeIsForThoseThatBootNext) {
  run([](World& w) -> asio::awaitable<void> {
    CreateRequest request = w.request();
    const std::string id = request.id;
    EXPECT_TRUE(co_await w.sandboxes->create(std::move(request)));
    EXPECT_TRUE(co_await w.sandboxes->pause(id, "op2"));
    SandboxChanges changes;
    changes.memory_mib = 768;
    const auto refused = co_await w.sandboxes->update(id, "op3", changes);
    EXPECT_EQ(refused.error().code, "size_in_memory");
    EXPECT_EQ(w.sandboxes->find(id)->record.size.memory_mib, 512u);
    SandboxChanges too_many;
    for (int i = 0; i < 300; ++i) too_many.env["N" + std::to_string(i)] = "";
    const auto full = co_await w.sandboxes->update(id, "op4", too_many);
    EXPECT_EQ(full.error().code, "invalid_field");
    const auto nobody = co_await w.sandboxes->update(new_id(), "op5", changes);
    EXPECT_EQ(nobody.error().code, "sandbox_not_found");
  });
}

// A sandbox that stands still, so that no guest has to be asked; its disk is a file that the test appends to.
struct DiskLife {
  explicit DiskLife(World& world) : w(world) {
    auto base = std::make_shared<tmpl::Base>();
    base->key = "disk";
    base->release.digest = "base";
    base->empty_overlay = Fd(::memfd_create("overlay", MFD_CLOEXEC));
    base->disk.resize(2);
    w.bases.base_ = base;
  }
  asio::awaitable<void> begin() {
    const CreateRequest request = w.request();
    id = request.id;
    EXPECT_TRUE(co_await w.sandboxes->create(request));
    EXPECT_TRUE(write_file_durable(w.records.folder(id) / "disk.qcow2", ""));
    EXPECT_TRUE(co_await w.sandboxes->pause(id, "p"));
  }
  void write(const std::string& what) {
    written += what;
    const Fd top = open_file(w.records.folder(id) / record().disks.back(), O_WRONLY | O_APPEND).value();
    EXPECT_TRUE(write_all(top, what));
  }
  Task<Done> snapshot(bool automatic = false) {
    Sandboxes::SnapshotOrder order{new_id(), {}, automatic};
    last = order.snapshot;
    co_return co_await w.sandboxes->snapshot(id, std::move(order));
  }
  const SandboxRecord& record() const { return w.sandboxes->find(id)->record; }
  std::string content() const {
    std::string all;
    const auto files = w.vault->layers("acme", record().layers).value();
    for (const Fd& file : files) all += read_fd(file, 1 << 20).value();
    return all;
  }
  asio::awaitable<void> settle() {
    co_await until([this] { return !w.sandboxes->find(id)->merging; });
  }
  World& w;
  std::string id, written, last;
};

TEST_F(SandboxesTest, ADiskHasFewGenerationsHoweverOftenItIsKept) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    for (int i = 0; i < 40; ++i) {
      disk.write(std::to_string(i) + "\n");
      const auto kept = co_await disk.snapshot();
      EXPECT_TRUE(kept) << describe(kept.error());
      EXPECT_LE(disk.record().layers.size(), 5u);
      EXPECT_EQ(disk.record().disks.size(), 1u);
    }
    co_await disk.settle();
    EXPECT_GT(w.machines.merges_, 5);
    EXPECT_EQ(disk.content(), disk.written) << "in their order";
    for (const std::size_t files : static_cast<FakeVm&>(*w.sandboxes->find(disk.id)->machine.vm).replaced_) EXPECT_LE(files, 4u);
    EXPECT_EQ(w.vault->list("acme")->size(), 40u);
    w.vault->collect();
    EXPECT_EQ(w.records.sandboxes().value().at(0).record->layers, disk.record().layers);
    // Every snapshot still has all that was there at its time.
    std::string until_then;
    int number = 0;
    const auto listed = w.vault->list("acme").value();
    for (const auto& one : listed) {
      std::string all;
      until_then += std::to_string(number++) + "\n";
      const auto files = w.vault->layers("acme", one->record.layers).value();
      for (const Fd& file : files) all += read_fd(file, 1 << 20).value();
      EXPECT_EQ(all, until_then);
    }
  });
}

TEST_F(SandboxesTest, AMergeThatFailsIsToldByTheNextOneThatNeedsItsRoomAndHarmsNothing) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    w.machines.failing_["merge"] = 2;
    for (int i = 0; i < 5; ++i) {
      disk.write("x");
      EXPECT_TRUE(co_await disk.snapshot());
    }
    co_await disk.settle();
    disk.write("y");
    const auto refused = co_await disk.snapshot();
    EXPECT_EQ(refused.error().code, "merge_failed");
    EXPECT_EQ(disk.record().disks.size(), 1u);
    EXPECT_TRUE(co_await disk.snapshot());
    co_await disk.settle();
    EXPECT_EQ(disk.content(), "xxxxxy");
  });
}

// The same while it runs, with memory: of a base that has none.
struct WholeLife : DiskLife {
  explicit WholeLife(World& world) : DiskLife(world) {
    auto base = std::const_pointer_cast<tmpl::Base>(w.bases.base_);
    base->memory = Fd(::memfd_create("memory", MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(base->memory.get(), 512 << 20), 0);
  }
  asio::awaitable<void> begin() {
    co_await DiskLife::begin();
    EXPECT_TRUE(co_await w.sandboxes->resume(id, "r"));
    EXPECT_TRUE(w.sandboxes->find(id)->sessions.add(new_id(), 1));  // so that its agent, which there is none of, is not asked
  }
  Task<Done> checkpoint() {
    last = new_id();
    co_return co_await w.sandboxes->checkpoint(id, "op " + last, last, "");
  }
  FakeVm& vm() const { return static_cast<FakeVm&>(*w.sandboxes->find(id)->machine.vm); }
  std::vector<std::string> files() const { return list_directory(w.records.folder(id)).value(); }
};

TEST_F(SandboxesTest, ACheckpointIsRecordedBehindItsManifestAndTheGuestGoesOn) {
  run([](World& w) -> asio::awaitable<void> {
    WholeLife life(w);
    co_await life.begin();
    for (const char* what : {"a", "b"}) {
      life.write(what);
      const auto done = co_await life.checkpoint();
      EXPECT_TRUE(done) << describe(done.error());
      EXPECT_EQ(life.vm().state(), vmm::VmState::running);
      const SandboxRecord stored = w.records.sandboxes().value().at(0).record.value();
      EXPECT_EQ(stored.checkpoint, life.last);
      EXPECT_EQ(stored.layers, life.record().layers);
      EXPECT_EQ(stored.disks, life.record().disks);
      EXPECT_EQ(stored.disks.size(), 1u);
      EXPECT_EQ(w.vault->open("acme", life.last)->record.layers, stored.layers);
    }
    EXPECT_EQ(life.content(), "ab");
    for (const std::string& name : life.files()) EXPECT_FALSE(name.starts_with(".")) << name;
    EXPECT_EQ((co_await w.sandboxes->checkpoint(life.id, "op " + life.last, life.last, ""))->record.checkpoint, life.last)
        << "the same again";
  });
}

TEST_F(SandboxesTest, ACheckpointThatFailsAtAnyStepLeavesTheGuestRunningAndNoManifest) {
  run([](World& w) -> asio::awaitable<void> {
    WholeLife life(w);
    co_await life.begin();
    life.write("a");
    for (const std::string step : {"capture", "switch", "resume", "activate"}) {
      if (step == "switch")
        life.vm().failing_switches_ = 1;
      else
        w.machines.failing_[step] = 1;
      const auto refused = co_await life.checkpoint();
      EXPECT_EQ(refused.error().code, step + "_failed");
      EXPECT_EQ(life.record().state, SandboxState::running) << step;
      if (step == "capture" || step == "switch") {
        EXPECT_EQ(life.vm().state(), vmm::VmState::running) << step;
      }
      EXPECT_EQ(w.vault->open("acme", life.last).error().code, "checkpoint_unknown") << step;
      EXPECT_EQ(w.records.sandboxes().value().at(0).record->checkpoint, "") << step;
    }
    EXPECT_EQ(life.vm().discarded_, 2) << "of those that the disk did not switch to";
    life.write("b");
    const auto done = co_await life.checkpoint();
    EXPECT_TRUE(done) << describe(done.error());
    EXPECT_EQ(life.content(), "ab");
    EXPECT_EQ(life.record().disks.size(), 1u);
    for (const std::string& name : life.files()) EXPECT_FALSE(name.starts_with(".")) << name;
  });
}

TEST_F(SandboxesTest, WhatAFailedSnapshotLeftGoesIntoTheNextOne) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    disk.write("a");
    EXPECT_TRUE(co_await disk.snapshot());
    // As after a store that failed behind the switch: two generations in the folder.
    SandboxRecord half = disk.record();
    half.disks.push_back("disk-" + new_id());
    EXPECT_TRUE(write_file_durable(w.records.folder(disk.id) / half.disks.back(), ""));
    disk.write("b");
    EXPECT_TRUE(w.records.update(half));
    w.sandboxes->find(disk.id)->record = half;
    w.sandboxes->find(disk.id)->switched = true;
    disk.write("c");
    EXPECT_TRUE(co_await disk.snapshot());
    EXPECT_EQ(disk.record().disks.size(), 1u);
    EXPECT_EQ(disk.content(), "abc");
  });
}

TEST_F(SandboxesTest, ASwitchThatFailedLeavesTheDiskAsItWas) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    auto& vm = static_cast<FakeVm&>(*w.sandboxes->find(disk.id)->machine.vm);
    vm.failing_switches_ = 3;
    const std::vector<std::string> before = disk.record().disks;
    for (int i = 0; i < 3; ++i) {
      disk.write("a");
      const auto refused = co_await disk.snapshot();
      EXPECT_EQ(refused.error().code, "switch_failed");
      EXPECT_EQ(disk.record().disks, before);
      EXPECT_EQ(w.records.sandboxes().value().at(0).record->disks, before);
    }
    EXPECT_EQ(vm.discarded_, 3);
    EXPECT_TRUE(co_await disk.snapshot());
    EXPECT_EQ(disk.content(), "aaa");
  });
}

// Cut off between the record and the switch, or behind it: nobody knows what the VM writes to, so nothing of it is frozen before the next
// switch.
TEST_F(SandboxesTest, AfterARestartNothingIsFrozenThatTheVmMayStillWrite) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    SandboxRecord half = disk.record();
    half.disks.push_back("disk-" + new_id());
    EXPECT_TRUE(write_file_durable(w.records.folder(disk.id) / half.disks.back(), ""));
    w.sandboxes->find(disk.id)->record = half;
    auto& vm = static_cast<FakeVm&>(*w.sandboxes->find(disk.id)->machine.vm);
    vm.failing_switches_ = 1;
    EXPECT_FALSE(co_await disk.snapshot());
    EXPECT_TRUE(disk.record().layers.empty());
    disk.write("late");
    EXPECT_TRUE(co_await disk.snapshot());
    EXPECT_EQ(disk.record().disks.size(), 1u);
    EXPECT_EQ(disk.content(), "late");
  });
}

TEST_F(SandboxesTest, AnAutomaticSnapshotOfADiskThatWasNotWrittenToIsNone) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    disk.write("a");
    EXPECT_TRUE(co_await disk.snapshot(true));
    EXPECT_TRUE(co_await disk.snapshot(true));
    EXPECT_EQ(w.vault->list("acme")->size(), 1u);
    EXPECT_TRUE(w.vault->list("acme")->at(0)->manifest.automatic);
    disk.write("b");
    EXPECT_TRUE(co_await disk.snapshot(true));
    EXPECT_EQ(w.vault->list("acme")->size(), 2u);
    // The same again, as after a lost answer.
    Sandboxes::SnapshotOrder again{disk.last, {}, true};
    EXPECT_TRUE(co_await w.sandboxes->snapshot(disk.id, std::move(again)));
    EXPECT_EQ(w.vault->list("acme")->size(), 2u);
  });
}

TEST_F(SandboxesTest, ADamagedLayerIsFoundBeforeAMachineStandsOnIt) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    disk.write("right");
    EXPECT_TRUE(co_await disk.snapshot());
    const auto& layer = disk.record().layers.at(0);
    const auto file = w.dir.path() / "store" / "tenants" / "acme" / "blobs" / layer.digest.substr(7) / "data";
    EXPECT_TRUE(write_file_durable(file, "wrong"));
    CreateRequest request = w.request();
    request.checkpoint = disk.last;
    // Another process, which has not written the layer itself.
    w.sandboxes.reset();
    w.vault.reset();
    w.vault = vault_in(w.dir.path());
    w.restart();
    const auto refused = co_await w.sandboxes->create(request);
    EXPECT_EQ(refused.error().code, "blob_corrupt");
    EXPECT_EQ(w.machines.alive_.size(), 1u) << "only that of the first";
    EXPECT_TRUE(write_file_durable(file, "right"));
    request.id = new_id();
    const auto made = co_await w.sandboxes->create(request);
    EXPECT_TRUE(made) << describe(made.error());
  });
}

TEST_F(SandboxesTest, ARestoreToASnapshotBootsFromItsDisk) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    disk.write("a");
    EXPECT_TRUE(co_await disk.snapshot());
    const std::string snapshot = disk.last;
    disk.write("b");
    EXPECT_TRUE(co_await disk.snapshot());
    const auto back = co_await w.sandboxes->restore(disk.id, "r", snapshot);
    EXPECT_TRUE(back) << describe(back.error());
    EXPECT_EQ(disk.content(), "a");
    EXPECT_TRUE(disk.record().booted);
    EXPECT_EQ(disk.record().epoch, 2u);
    EXPECT_EQ(disk.record().state, SandboxState::running);
    EXPECT_EQ(w.machines.alive_.size(), 1u);
    // And a new sandbox out of it.
    CreateRequest request = w.request();
    request.checkpoint = snapshot;
    const auto fork = co_await w.sandboxes->create(request);
    EXPECT_TRUE(fork) << describe(fork.error());
    EXPECT_TRUE(fork && fork->record.booted && fork->record.layers.size() == 1);
  });
}

}  // namespace
}  // namespace space::node
