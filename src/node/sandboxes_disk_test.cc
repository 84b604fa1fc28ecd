// What is kept of a sandbox's disk and memory: checkpoints, snapshots, generations that are merged.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/encoding.h"
#include "http/router.h"
#include "http/server.h"
#include "node/sandboxes_testing.h"

namespace space::node {
namespace {

using namespace testing;  // NOLINT

struct SandboxesDisk : SandboxesTest {};

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

TEST_F(SandboxesDisk, ADiskHasFewGenerationsHoweverOftenItIsKept) {
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

TEST_F(SandboxesDisk, AMergeThatFailsIsToldByTheNextOneThatNeedsItsRoomAndHarmsNothing) {
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

TEST_F(SandboxesDisk, ACheckpointIsRecordedBehindItsManifestAndTheGuestGoesOn) {
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

TEST_F(SandboxesDisk, ACheckpointThatFailsAtAnyStepLeavesTheGuestRunningAndNoManifest) {
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

// The agents of the sandbox and of the helper beside it: whatever runs there writes `frames`, and is cut off where these have no exit.
struct TarAgents {
  explicit TarAgents(World& w) : server(w.executor, [this](http::Exchange& e) { return router(e); }) {
    const auto path = w.dir.path() / "agent.sock";
    EXPECT_TRUE(server.serve(listen_unix(path, SOCK_STREAM, 0600).value()));
    w.machines.executor_ = w.executor;
    w.machines.agent_ = http::unix_connector(path.string());
    router.add("GET", "/v1/files/stat", [](http::Exchange& e) { return e.reply(http::json_response(200, "{}")); });
    router.add("POST", "/v1/processes", [](http::Exchange& e) { return e.reply(http::json_response(201, R"({"process":7})")); });
    router.add("POST", "/v1/processes/{n}/attach", [this](http::Exchange& e) { return attach(e); });
    router.add("POST", "/v1/processes/{n}/stdin", [](http::Exchange& e) { return take(e); });
  }
  Task<> attach(http::Exchange& e) {
    CO_TRY_VOID(co_await e.start(200, {}));
    std::string text;
    for (const wire::Frame& frame : frames) text += wire::encode_frame(frame);
    CO_TRY_VOID(co_await e.write(as_bytes(text)));
    if (frames.back().type == wire::FrameType::exit) co_return co_await e.finish();
    co_return fail(ErrorKind::conflict, "outside_window", "the reader stalled");
  }
  static Task<> take(http::Exchange& e) {
    CO_TRY_VOID(co_await e.read_body(1 << 20));
    co_return co_await e.reply(http::json_response(200, "{}"));
  }
  std::vector<wire::Frame> frames;
  http::Router router;
  http::Server server;
};

TEST_F(SandboxesDisk, APathThatDidNotComeWholeSaysThatItIsAskedForAgain) {
  run([](World& w) -> asio::awaitable<void> {
    TarAgents agents(w);
    WholeLife life(w);
    co_await life.begin();
    life.write("a");
    EXPECT_TRUE(co_await life.checkpoint());
    agents.frames = {{wire::FrameType::stdout_bytes, 1, "half"}};
    const auto cut = co_await w.sandboxes->restore_path(life.id, life.last, "/home/user/x", "");
    EXPECT_FALSE(cut);
    if (!cut) {
      EXPECT_NE(cut.error().next.find("ask again"), std::string::npos) << describe(cut.error());
    }
    agents.frames = {{wire::FrameType::stderr_bytes, 1, "no room"}, {wire::FrameType::exit, 2, wire::encode_exit({2, 0, false, false})}};
    const auto full = co_await w.sandboxes->restore_path(life.id, life.last, "/home/user/x", "");
    EXPECT_FALSE(full);
    if (!full) {
      EXPECT_EQ(full.error().code, "path_not_copied");
      EXPECT_NE(full.error().message.find("no room"), std::string::npos);
      EXPECT_NE(full.error().next.find("ask again"), std::string::npos);
    }
    EXPECT_EQ(w.machines.alive_.size(), 1u) << "no helper stays";
    co_await agents.server.stop(std::chrono::milliseconds(0));
  });
}

TEST_F(SandboxesDisk, AGuestThatDoesNotFreezeGetsNoCheckpointAndGoesOn) {
  run([](World& w) -> asio::awaitable<void> {
    WholeLife life(w);
    co_await life.begin();
    life.write("a");
    const std::vector<std::string> disks = life.record().disks;
    w.machines.failing_["freeze"] = 1;
    const auto refused = co_await life.checkpoint();
    EXPECT_EQ(w.machines.freeze_limit_, kInitLimit) << "it cannot do without";
    EXPECT_EQ(refused.error().code, "guest_not_frozen");
    EXPECT_EQ(refused.error().kind, ErrorKind::conflict);
    EXPECT_FALSE(refused.error().next.empty());
    EXPECT_EQ(life.record().state, SandboxState::running);
    EXPECT_EQ(life.vm().state(), vmm::VmState::running);
    EXPECT_TRUE(w.machines.frozen_.empty()) << "what had frozen goes on too";
    EXPECT_EQ(w.vault->open("acme", life.last).error().code, "checkpoint_unknown");
    EXPECT_EQ(life.record().disks, disks);
    EXPECT_EQ(w.records.sandboxes().value().at(0).record->disks, disks);
    EXPECT_EQ(life.files().size(), 2u) << "its record and its disk";
    EXPECT_EQ(life.vm().discarded_, 1);
    const auto done = co_await life.checkpoint();
    EXPECT_TRUE(done) << describe(done.error());
    EXPECT_EQ(life.content(), "a");
    CreateRequest request = w.request();
    request.checkpoint = life.last;
    EXPECT_TRUE(co_await w.sandboxes->create(request));
  });
}

TEST_F(SandboxesDisk, OneThatWasPausedUnfrozenIsNotForkedBeforeItHasGoneOn) {
  run([](World& w) -> asio::awaitable<void> {
    WholeLife life(w);
    co_await life.begin();
    w.machines.failing_["freeze"] = 1;
    EXPECT_TRUE(co_await w.sandboxes->pause(life.id, "p2")) << "it alone loses a little";
    EXPECT_EQ(w.machines.freeze_limit_, kFreezeLimit);
    EXPECT_EQ((co_await life.checkpoint()).error().code, "guest_not_frozen");
    EXPECT_EQ(life.record().state, SandboxState::paused);
    w.machines.states_[life.record().vm] = vmm::VmState::paused;
    w.restart();
    EXPECT_TRUE(co_await recover(*w.sandboxes, *w.parts, w.driver));
    EXPECT_EQ((co_await life.checkpoint()).error().code, "guest_not_frozen") << "a restart does not forget it";
    EXPECT_TRUE(co_await w.sandboxes->resume(life.id, "r2"));
    EXPECT_FALSE(w.records.sandboxes().value().at(0).record->unfrozen);
    EXPECT_TRUE(co_await w.sandboxes->pause(life.id, "p3"));
    const auto done = co_await life.checkpoint();
    EXPECT_TRUE(done) << describe(done.error());
  });
}

TEST_F(SandboxesDisk, OneThatWasSuspendedUnfrozenWakesAndIsNotForked) {
  run([](World& w) -> asio::awaitable<void> {
    WholeLife life(w);
    co_await life.begin();
    w.machines.failing_["freeze"] = 1;
    const auto rests = co_await w.sandboxes->suspend(life.id, "s");
    EXPECT_TRUE(rests) << describe(rests.error());
    if (!rests) co_return;
    CreateRequest request = w.request();
    request.checkpoint = rests->record.saved;
    EXPECT_EQ((co_await w.sandboxes->create(request)).error().code, "guest_not_frozen");
    EXPECT_TRUE(w.machines.alive_.empty());
    EXPECT_EQ(w.folders(), 1u);
    const auto awake = co_await w.sandboxes->wake(life.id, "w");
    EXPECT_TRUE(awake) << describe(awake.error());
    EXPECT_FALSE(w.records.sandboxes().value().at(0).record->unfrozen);
  });
}

// The record is there before the guest was told, so that a kill -9 between the two is met again at the next start.
TEST_F(SandboxesDisk, AKillBetweenALoadAndItsWordToTheGuestIsMadeUpForOnce) {
  run([](World& w) -> asio::awaitable<void> {
    const auto stored = [&](const std::string& id) {
      return decode_record(read_file(w.records.folder(id) / "record.json", 1 << 20).value()).value();
    };
    WholeLife life(w);
    co_await life.begin();
    EXPECT_FALSE(stored(life.id).loaded) << "it was made of its base";
    EXPECT_TRUE(co_await life.checkpoint());
    CreateRequest request = w.request();
    request.checkpoint = life.last;
    EXPECT_TRUE(co_await w.sandboxes->create(request));
    EXPECT_TRUE(stored(request.id).loaded) << "before its guest was told";
    EXPECT_TRUE(co_await w.sandboxes->suspend(life.id, "s"));
    EXPECT_TRUE(co_await w.sandboxes->wake(life.id, "w"));
    EXPECT_TRUE(stored(life.id).loaded);
    EXPECT_TRUE(co_await w.sandboxes->create(w.request()));
    for (const SandboxRecord& one : w.sandboxes->list()) {
      const bool loaded = one.id == life.id || one.id == request.id;
      EXPECT_EQ(w.machines.identities_.at(one.vm).loaded, loaded);
      EXPECT_FALSE(one.loaded) << "it has been told";
      SandboxRecord as_cut_off = one;
      as_cut_off.loaded = loaded;
      EXPECT_TRUE(w.records.update(as_cut_off));
    }
    for (const bool first : {true, false}) {
      w.machines.identities_.clear();
      w.restart();
      EXPECT_TRUE(co_await recover(*w.sandboxes, *w.parts, w.driver));
      co_await until([&] { return w.machines.identities_.size() == 3; });
      for (const SandboxRecord& one : w.sandboxes->list()) {
        const bool loaded = one.id == life.id || one.id == request.id;
        EXPECT_EQ(w.machines.identities_.at(one.vm).loaded, loaded && first);
      }
      co_await until([&] { return !stored(life.id).loaded && !stored(request.id).loaded; });
      co_await sleep_for(std::chrono::milliseconds(50));  // until recovery's greetings have heard that as well
    }
  });
}

TEST_F(SandboxesDisk, ARestartLongAfterALoadEndsNoConnections) {
  run([](World& w) -> asio::awaitable<void> {
    WholeLife life(w);
    co_await life.begin();
    EXPECT_TRUE(co_await w.sandboxes->suspend(life.id, "s"));
    EXPECT_TRUE(co_await w.sandboxes->wake(life.id, "w"));
    co_await until([&] { return !w.records.sandboxes().value().at(0).record->loaded; });
    co_await w.sandboxes->settle();
  });
}

TEST_F(SandboxesDisk, WhatAFailedSnapshotLeftGoesIntoTheNextOne) {
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

TEST_F(SandboxesDisk, ASwitchThatFailedLeavesTheDiskAsItWas) {
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
TEST_F(SandboxesDisk, AfterARestartNothingIsFrozenThatTheVmMayStillWrite) {
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

TEST_F(SandboxesDisk, AnAutomaticSnapshotOfADiskThatWasNotWrittenToIsNone) {
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

// A child's is added to its parent's, from one generation to the next; a record with more than can be read is lost with the next start.
TEST_F(SandboxesDisk, TheEnvironmentsOfAFamilyDoNotGrowWithoutEnd) {
  run([](World& w) -> asio::awaitable<void> {
    DiskLife disk(w);
    co_await disk.begin();
    disk.write("a");
    EXPECT_TRUE(co_await disk.snapshot());
    CreateRequest request = w.request();
    request.checkpoint = disk.last;
    request.env.clear();
    for (int i = 0; i < 256; ++i) request.env["V" + std::to_string(i)] = "v";
    const auto refused = co_await w.sandboxes->create(request);
    EXPECT_EQ(refused ? "" : refused.error().code, "invalid_field");
    EXPECT_FALSE(w.sandboxes->find(request.id));
    EXPECT_EQ(w.folders(), 1u);
    request.id = new_id();
    request.env.erase("V255");
    const auto made = co_await w.sandboxes->create(request);
    EXPECT_TRUE(made) << describe(made.error());
    EXPECT_TRUE(made && made->record.env.size() == 256 && made->record.env.contains("A"));
    // A fork that adds nothing has what there is, however much an earlier version took.
    SandboxRecord& parent = w.sandboxes->find(disk.id)->record;
    for (int i = 0; i < 300; ++i) parent.env["P" + std::to_string(i)] = "p";
    disk.write("b");
    EXPECT_TRUE(co_await disk.snapshot());
    request.id = new_id();
    request.checkpoint = disk.last;
    request.env.clear();
    EXPECT_TRUE(co_await w.sandboxes->create(request));
  });
}

TEST_F(SandboxesDisk, ADamagedLayerIsFoundBeforeAMachineStandsOnIt) {
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

TEST_F(SandboxesDisk, WhileADiskIsReadTheRecordsOfOthersAreWritten) {
  run([](World& w) -> asio::awaitable<void> {
    using Clock = std::chrono::steady_clock;
    DiskLife disk(w);
    co_await disk.begin();
    std::filesystem::resize_file(w.records.folder(disk.id) / disk.record().disks.back(), 512 << 20);
    EXPECT_TRUE(co_await disk.snapshot());
    w.sandboxes.reset();
    w.vault.reset();
    w.vault = vault_in(w.dir.path());  // another process, which has not written the layer itself
    w.restart();
    const CreateRequest other = w.request();
    EXPECT_TRUE(co_await w.sandboxes->create(other));
    int made = 0;
    for (int i = 0; i < 2; ++i) {  // as many as the disk has threads here
      CreateRequest request = w.request();
      request.checkpoint = disk.last;
      spawn(w.executor, [](World& world, CreateRequest wanted, int& count) -> asio::awaitable<void> {
        EXPECT_TRUE(co_await world.sandboxes->create(std::move(wanted)));
        ++count;
      }(w, request, made));
    }
    co_await sleep_for(std::chrono::milliseconds(30));
    const auto asked = Clock::now();
    EXPECT_TRUE(co_await w.sandboxes->set_snapshots(other.id, 60, 5));
    const auto stored = Clock::now() - asked;
    EXPECT_EQ(made, 0);
    co_await until([&] { return made == 2; });
    EXPECT_LT(stored * 2, Clock::now() - asked);
  });
}

TEST_F(SandboxesDisk, ARestoreToASnapshotBootsFromItsDisk) {
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
