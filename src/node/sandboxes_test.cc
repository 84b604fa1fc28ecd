#include "node/sandboxes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "node/sandboxes_testing.h"

namespace space::node {
namespace {

using std::chrono::milliseconds;
using namespace testing;  // NOLINT

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

}  // namespace
}  // namespace space::node
