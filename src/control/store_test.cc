#include "control/sqlite_store.h"

#include <gtest/gtest.h>

#include <boost/asio/detached.hpp>
#include <set>

#include "base/file.h"
#include "base/random.h"
#include "control/checkpoints.h"
#include "control/database.h"
#include "control/schema.h"
#include "control/testing.h"
#include "control/volumes.h"

namespace space::control {
namespace {

using testing::run;

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() : folder_(std::move(*TempDir::make(std::filesystem::temp_directory_path(), "space-store-"))) { open(); }
  ~StoreTest() override { store_.reset(); }

  void open() {
    store_.reset();
    auto opened = open_sqlite_store(path(), loop_.get_executor(), clock_);
    ASSERT_TRUE(opened) << describe(opened.error());
    store_ = std::move(*opened);
  }
  std::filesystem::path path() const { return folder_.path() / "control" / "space.db"; }

  template <class T>
  T must(Task<T> task) {
    auto result = run(loop_, std::move(task));
    if (!result) ADD_FAILURE() << describe(result.error());
    if constexpr (!std::is_void_v<T>) return result ? std::move(*result) : T{};
  }
  template <class T>
  std::string code(Task<T> task) {
    auto result = run(loop_, std::move(task));
    return result ? "" : result.error().code;
  }

  Operation operation(OperationKind kind, const std::string& sandbox, const std::string& tenant = "default") {
    Operation out;
    out.id = new_id();
    out.tenant = tenant;
    out.sandbox = sandbox;
    out.kind = kind;
    out.reason = kind == OperationKind::remove ? "requested" : "";
    out.created_ms = clock_.wall_ms();
    return out;
  }
  Accepted create(std::map<std::string, std::string> metadata = {}, std::int64_t limit_s = 0, const std::string& tenant = "default") {
    Sandbox sandbox;
    sandbox.id = new_id();
    sandbox.tenant = tenant;
    sandbox.template_reference = "base";
    sandbox.metadata = std::move(metadata);
    sandbox.time_limit_s = limit_s;
    sandbox.created_ms = clock_.wall_ms();
    Operation create = operation(OperationKind::create, sandbox.id, tenant);
    create.request = R"({"env":{"A":"1"}})";
    return must(store_->accept_create(sandbox, create, std::nullopt));
  }
  Finished finish(const Operation& operation, OperationState state, std::optional<SandboxState> to) {
    Outcome outcome;
    outcome.state = state;
    outcome.sandbox_state = to;
    outcome.spans = {{"node", 5, 7}};
    if (operation.kind == OperationKind::create) outcome.template_digest = "sha256:aa";
    return must(store_->finish_operation(operation.id, outcome));
  }
  Sandbox running(std::map<std::string, std::string> metadata = {}, std::int64_t limit_s = 0) {
    const Accepted accepted = create(std::move(metadata), limit_s);
    return *finish(accepted.operation, OperationState::succeeded, SandboxState::running).sandbox;
  }

  TempDir folder_;
  asio::io_context loop_;
  ManualClock clock_;
  std::unique_ptr<Store> store_;
};

TEST(Parent, GivesItsChildrenNoLabelOfTheServers) {
  Sandbox volume;
  volume.metadata = {{kKindLabel, kVolumeKind}, {kVolumeName, "v"}, {"mine", "1"}, {"spaces", "2"}};
  ASSERT_TRUE(is_volume(volume));
  const Sandbox child = child_of(Parent(volume), {}, 1);
  EXPECT_EQ(child.metadata, (std::map<std::string, std::string>{{"mine", "1"}, {"spaces", "2"}}));
}

TEST_F(StoreTest, AForkHasItsParentsPolicyOrTheOneItWasGivenAndItsParentsAuthority) {
  const std::string open = R"({"policy":{"mode":"open"}})", none = R"({"policy":{"mode":"none"}})";
  const Sandbox parent = running();
  must(store_->put_egress("default", parent.id, open, std::nullopt));
  std::vector<Sandbox> children{child_of(Parent(parent), {}, 1), child_of(Parent(parent), {}, 1)};
  children[1].egress = none;
  const std::string alike = children[0].id, other = children[1].id;
  must(store_->accept_fork(std::move(children), operation(OperationKind::fork, parent.id), std::nullopt));
  for (const auto& [id, document] : {std::pair(alike, open), std::pair(other, none)}) {
    const EgressSettings settings = must(store_->find_egress("default", id));
    EXPECT_EQ(settings.document, document);
    EXPECT_EQ(settings.lineage, parent.id);
    EXPECT_EQ(settings.generation, 1);
  }
}

TEST_F(StoreTest, VolumesOfATenantHaveNamesOfTheirOwn) {
  std::string id;
  const auto make = [&](const std::string& name, const std::string& tenant = "default") {
    Sandbox volume = new_volume(tenant, name, {}, clock_.wall_ms());
    Operation create = operation(OperationKind::create, volume.id, tenant);
    id = volume.id;
    return code(store_->accept_create(std::move(volume), std::move(create), std::nullopt));
  };
  EXPECT_EQ(make("v"), "");
  const std::string first = id;
  EXPECT_EQ(make("v"), "volume_exists");
  EXPECT_EQ(make("w"), "");
  EXPECT_EQ(make("v", "second"), "");
  must(store_->accept_change(operation(OperationKind::remove, first), std::nullopt));
  EXPECT_EQ(make("v"), "") << "one that is on its way out has no name any more";
  EXPECT_EQ(make("v"), "volume_exists");
}

TEST_F(StoreTest, KeepsWhatWasAcceptedAcrossAReopen) {
  const Accepted accepted = create({{"k", "v"}}, 60);
  store_->claim_operation(accepted.operation.id, clock_.wall_ms());
  open();
  const Sandbox sandbox = must(store_->find_sandbox("default", accepted.sandbox.id));
  EXPECT_EQ(sandbox.state, SandboxState::creating);
  EXPECT_EQ(sandbox.metadata.at("k"), "v");
  EXPECT_EQ(sandbox.ends_ms, 0) << "the clock runs while the sandbox does";
  const auto unfinished = must(store_->unfinished_operations());
  ASSERT_EQ(unfinished.size(), 1u);
  EXPECT_EQ(unfinished[0].id, accepted.operation.id);
  EXPECT_EQ(unfinished[0].state, OperationState::running);
  EXPECT_EQ(unfinished[0].request, R"({"env":{"A":"1"}})");
}

TEST_F(StoreTest, FinishingMovesTheSandboxAndForgetsTheEnvironment) {
  const Accepted accepted = create({}, 60);
  const Finished finished = finish(accepted.operation, OperationState::succeeded, SandboxState::running);
  EXPECT_EQ(finished.sandbox->state, SandboxState::running);
  EXPECT_EQ(finished.sandbox->ends_ms, clock_.wall_ms() + 60'000);
  const Operation operation = must(store_->find_operation("default", accepted.operation.id));
  EXPECT_EQ(operation.state, OperationState::succeeded);
  EXPECT_EQ(operation.request, "");
  ASSERT_EQ(operation.spans.size(), 1u);
  EXPECT_EQ(operation.spans[0].duration_us, 7);
  EXPECT_TRUE(must(store_->unfinished_operations()).empty());
  // A second end, as after a crash between commit and note, changes nothing.
  EXPECT_EQ(finish(accepted.operation, OperationState::failed, SandboxState::failed).operation.state, OperationState::succeeded);
  EXPECT_EQ(must(store_->find_sandbox("default", accepted.sandbox.id)).state, SandboxState::running);
}

TEST_F(StoreTest, ATimeLimitStandsStillWhilePaused) {
  const Sandbox sandbox = running({}, 60);
  EXPECT_EQ(must(store_->next_deadline()), sandbox.ends_ms);
  clock_.advance(std::chrono::seconds(20));
  auto pause = must(store_->accept_change(operation(OperationKind::pause, sandbox.id), std::nullopt));
  EXPECT_EQ(finish(pause.operation, OperationState::succeeded, SandboxState::paused).sandbox->ends_ms, 0);
  EXPECT_EQ(must(store_->next_deadline()), 0);
  clock_.advance(std::chrono::hours(5));
  auto resume = must(store_->accept_change(operation(OperationKind::resume, sandbox.id), std::nullopt));
  EXPECT_EQ(finish(resume.operation, OperationState::succeeded, SandboxState::running).sandbox->ends_ms, clock_.wall_ms() + 40'000);
  EXPECT_TRUE(must(store_->due_sandboxes(clock_.wall_ms() + 39'999)).empty());
  EXPECT_EQ(must(store_->due_sandboxes(clock_.wall_ms() + 40'000)).size(), 1u);
}

TEST_F(StoreTest, AnotherTenantsObjectsAreNotFound) {
  const Accepted accepted = create();
  EXPECT_EQ(code(store_->find_sandbox("other", accepted.sandbox.id)), "sandbox_not_found");
  EXPECT_EQ(code(store_->find_operation("other", accepted.operation.id)), "operation_not_found");
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::remove, accepted.sandbox.id, "other"), std::nullopt)), "sandbox_not_found");
  EXPECT_EQ(code(store_->request_cancel("other", accepted.operation.id)), "operation_not_found");
  EXPECT_TRUE(must(store_->list_sandboxes("other", {}, {})).empty());
  EXPECT_TRUE(must(store_->events_after("other", 0, 100)).empty());
}

TEST_F(StoreTest, DeleteWhileCreatingAsksTheCreateToEnd) {
  const Accepted accepted = create();
  const Accepted removal = must(store_->accept_change(operation(OperationKind::remove, accepted.sandbox.id), std::nullopt));
  EXPECT_EQ(removal.sandbox.state, SandboxState::deleting);
  EXPECT_TRUE(must(store_->find_operation("default", accepted.operation.id)).cancel_requested);
  // The create ends late and well; the sandbox stays on its way out.
  EXPECT_EQ(finish(accepted.operation, OperationState::succeeded, SandboxState::running).sandbox->state, SandboxState::deleting);
  const Accepted again = must(store_->accept_change(operation(OperationKind::remove, accepted.sandbox.id), std::nullopt));
  EXPECT_TRUE(again.joined);
  EXPECT_EQ(again.operation.id, removal.operation.id);
  EXPECT_FALSE(finish(removal.operation, OperationState::succeeded, SandboxState::deleted).sandbox.has_value());
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::remove, accepted.sandbox.id), std::nullopt)), "sandbox_not_found");
}

TEST_F(StoreTest, PauseAndResumeAnswerByTheState) {
  const Accepted accepted = create();
  const std::string id = accepted.sandbox.id;
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::pause, id), std::nullopt)), "sandbox_not_ready");
  finish(accepted.operation, OperationState::succeeded, SandboxState::running);
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::resume, id), std::nullopt)), "sandbox_running");
  const Accepted pause = must(store_->accept_change(operation(OperationKind::pause, id), std::nullopt));
  EXPECT_TRUE(must(store_->accept_change(operation(OperationKind::pause, id), std::nullopt)).joined);
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::resume, id), std::nullopt)), "sandbox_busy");
  finish(pause.operation, OperationState::succeeded, SandboxState::paused);
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::pause, id), std::nullopt)), "sandbox_paused");
  EXPECT_TRUE(must(store_->end_sandbox(id, "guest_stopped")));
  EXPECT_FALSE(must(store_->end_sandbox(id, "guest_stopped")));
  EXPECT_EQ(code(store_->accept_change(operation(OperationKind::resume, id), std::nullopt)), "sandbox_ended");
  EXPECT_EQ(must(store_->find_sandbox("default", id)).end_reason, "guest_stopped");
}

TEST_F(StoreTest, CancelIsForOperationsThatCanStillEnd) {
  const Accepted accepted = create();
  EXPECT_TRUE(must(store_->request_cancel("default", accepted.operation.id)).cancel_requested);
  const Finished finished = finish(accepted.operation, OperationState::cancelled, SandboxState::deleted);
  EXPECT_FALSE(finished.sandbox);
  EXPECT_EQ(code(store_->request_cancel("default", accepted.operation.id)), "operation_finished");
  const Sandbox sandbox = running();
  const Accepted removal = must(store_->accept_change(operation(OperationKind::remove, sandbox.id), std::nullopt));
  EXPECT_EQ(code(store_->request_cancel("default", removal.operation.id)), "not_cancellable");
}

TEST_F(StoreTest, TheSameIdempotencyKeyGivesTheStoredAnswer) {
  const auto with_key = [&](const std::string& fingerprint) {
    Sandbox sandbox;
    sandbox.id = new_id();
    sandbox.tenant = "default";
    sandbox.template_reference = "base";
    sandbox.created_ms = clock_.wall_ms();
    Idempotency keep{"key-1", fingerprint, [fingerprint](const Sandbox& s, const Operation& o) {
                       return KeptAnswer{fingerprint, 202, s.id, o.id};
                     }};
    return store_->accept_create(sandbox, operation(OperationKind::create, sandbox.id), keep);
  };
  const Accepted first = must(with_key("print"));
  EXPECT_FALSE(first.replay);
  open();
  const Accepted second = must(with_key("print"));
  ASSERT_TRUE(second.replay);
  EXPECT_EQ(second.replay->body, first.sandbox.id);
  EXPECT_EQ(second.operation.id, first.operation.id);
  EXPECT_EQ(code(with_key("another")), "idempotency_key_reused");
  EXPECT_EQ(must(store_->list_sandboxes("default", {}, {})).size(), 1u);
  must(store_->remember_answer("default", "key-1", {"print", 201, "ready", first.operation.id}));
  EXPECT_EQ(must(with_key("print")).replay->status, 201);
}

TEST_F(StoreTest, AnswersWithoutAnOperationAreBegunAndKept) {
  EXPECT_FALSE(must(store_->begin_answer("default", "k", "print")));
  EXPECT_EQ(must(store_->begin_answer("default", "k", "print"))->status, 0) << "under way";
  EXPECT_FALSE(must(store_->begin_answer("other", "k", "print"))) << "keys belong to their tenant";
  EXPECT_EQ(code(store_->begin_answer("default", "k", "else")), "idempotency_key_reused");
  must(store_->remember_answer("default", "k", {"print", 200, "{}", ""}));
  EXPECT_EQ(must(store_->begin_answer("default", "k", "print"))->body, "{}");
  must(store_->forget_answer("default", "k"));
  EXPECT_FALSE(must(store_->begin_answer("default", "k", "else")));
}

TEST_F(StoreTest, PagesShowEverySandboxOnceWhileOthersComeAndGo) {
  std::vector<Accepted> all;
  for (int i = 0; i < 25; ++i) all.push_back(create({{"i", std::to_string(i)}, {"even", i % 2 ? "no" : "yes"}}));
  std::set<std::string> seen;
  Page page{0, 10};
  int pages = 0;
  for (;; ++pages) {
    const auto found = must(store_->list_sandboxes("default", page, {}));
    if (found.empty()) break;
    for (const Sandbox& sandbox : found) EXPECT_TRUE(seen.insert(sandbox.id).second);
    page.before = found.back().sequence;
    create();                                                                                    // newer: not on later pages
    if (pages == 0) finish(all[3].operation, OperationState::cancelled, SandboxState::deleted);  // older: gone from them
  }
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(seen.size(), 24u);
  SandboxFilter even;
  even.metadata = {{"even", "yes"}, {"i", "4"}};
  EXPECT_EQ(must(store_->list_sandboxes("default", {}, even)).size(), 1u);
  even.metadata = {{"even", "yes"}};
  EXPECT_EQ(must(store_->list_sandboxes("default", Page{0, 100}, even)).size(), 13u);
  even.states = {SandboxState::running, SandboxState::paused};
  EXPECT_TRUE(must(store_->list_sandboxes("default", {}, even)).empty());
  even.states = {SandboxState::creating};
  EXPECT_EQ(must(store_->list_sandboxes("default", Page{0, 100}, even)).size(), 13u);
}

TEST_F(StoreTest, WhatIsKeptOfSecretsAndSnapshotsLastsAsLongAsTheyDo) {
  const std::string sandbox = running().id, gone = new_id();
  for (const std::string& of : {sandbox, gone, std::string("secret:s"), std::string("mounts-of-snapshot:s")})
    must(store_->put_settings(of, "{}"));
  clock_.advance(std::chrono::hours(25));
  must(store_->prune({}));
  const auto is_kept = [&](const std::string& of) { return !must(store_->find_settings(of)).empty(); };
  EXPECT_TRUE(is_kept(sandbox) && is_kept("secret:s") && is_kept("mounts-of-snapshot:s"));
  EXPECT_FALSE(is_kept(gone));
  for (const char* of : {"secret:s", "mounts-of-snapshot:s"}) must(store_->put_settings(of, ""));
  EXPECT_EQ(must(store_->prune({})), 2u);
}

TEST_F(StoreTest, EventsAreInOrderAndNumbersAreNeverUsedTwice) {
  const Sandbox sandbox = running();
  auto events = must(store_->events_after("default", 0, 100));
  std::vector<std::string> types;
  for (const Event& event : events) types.push_back(event.type);
  EXPECT_EQ(types, (std::vector<std::string>{"sandbox.creating", "sandbox.running", "operation.succeeded"}));
  EXPECT_EQ(must(store_->event_window()).last, events.back().sequence);
  clock_.advance(std::chrono::hours(24 * 8));
  EXPECT_GE(must(store_->prune({})), 3u);
  EXPECT_TRUE(must(store_->events_after("default", 0, 100)).empty());
  const EventWindow window = must(store_->event_window());
  EXPECT_EQ(window.last, events.back().sequence);
  EXPECT_EQ(window.first, window.last + 1);
  create();
  EXPECT_GT(must(store_->events_after("default", 0, 100)).front().sequence, events.back().sequence);
  EXPECT_EQ(must(store_->find_sandbox("default", sandbox.id)).state, SandboxState::running) << "what runs is never collected";
}

TEST_F(StoreTest, RetentionIsBounded) {
  for (int i = 0; i < 20; ++i) {
    const Accepted accepted = create();
    finish(accepted.operation, OperationState::failed, SandboxState::failed);
    must(store_->begin_answer("default", std::to_string(i), "p"));
    must(store_->remember_answer("default", std::to_string(i), {"p", 200, "", ""}));
  }
  Retention few;
  few.max_answers = 5, few.max_operations = 6, few.max_events = 7;
  must(store_->prune(few));
  EXPECT_EQ(must(store_->list_operations("default", Page{0, 100}, {})).size(), 6u);
  EXPECT_EQ(must(store_->events_after("default", 0, 100)).size(), 7u);
  EXPECT_TRUE(must(store_->begin_answer("default", "19", "p")));
  EXPECT_FALSE(must(store_->begin_answer("default", "0", "p")));
  EXPECT_EQ(must(store_->list_sandboxes("default", Page{0, 100}, {})).size(), 20u);
  clock_.advance(std::chrono::hours(25));
  const auto remains = must(store_->old_remains(clock_.wall_ms() - few.remains_ms));
  ASSERT_EQ(remains.size(), 20u);
  must(store_->accept_change(operation(OperationKind::remove, remains[0].id), std::nullopt));
  EXPECT_EQ(must(store_->old_remains(clock_.wall_ms() - few.remains_ms)).size(), 19u);
}

TEST_F(StoreTest, AnswersAreCountedByTheirTenant) {
  const std::string shared = "attach:" + create().sandbox.id, orphan = "attach:" + new_id();
  const auto answered = [&](const std::string& tenant, const std::string& key) {
    must(store_->begin_answer(tenant, key, "p"));
    must(store_->remember_answer(tenant, key, {"p", 200, "", ""}));
  };
  const auto kept = [&](const std::string& tenant, const std::string& key) {
    return must(store_->find_answer(tenant, key, "p")).has_value();
  };
  answered("quiet", "k");
  answered(shared, "k");
  answered(orphan, "k");
  must(store_->begin_answer("busy", "under way", "p"));
  for (int i = 0; i < 20; ++i) answered("busy", std::to_string(i));
  Retention few;
  few.max_answers = 5;
  EXPECT_EQ(must(store_->prune(few)), 16u);
  EXPECT_TRUE(kept("quiet", "k")) << "not for another's traffic";
  EXPECT_TRUE(kept(shared, "k"));
  EXPECT_FALSE(kept(orphan, "k")) << "its sandbox is gone, and nobody can ask again";
  EXPECT_TRUE(kept("busy", "under way"));
  EXPECT_FALSE(kept("busy", "14"));
  EXPECT_TRUE(kept("busy", "15"));
  EXPECT_EQ(must(store_->prune(few)), 0u);
}

TEST_F(StoreTest, AVolumeThatEndedStaysAndIsListedWhenItIsAskedFor) {
  const Sandbox volume = running({{kKindLabel, kVolumeKind}, {kVolumeName, "v"}}), ordinary = running();
  EXPECT_TRUE(is_volume(volume));
  EXPECT_FALSE(is_volume(ordinary));
  for (const std::string& id : {volume.id, ordinary.id}) EXPECT_TRUE(must(store_->end_sandbox(id, "vmm_gone")));
  const Accepted never_made = create({{kKindLabel, kVolumeKind}, {kVolumeName, "w"}});
  finish(never_made.operation, OperationState::failed, SandboxState::failed);
  clock_.advance(std::chrono::hours(25));
  std::set<std::string> old;
  for (const Sandbox& one : must(store_->old_remains(clock_.wall_ms()))) old.insert(one.id);
  EXPECT_EQ(old, (std::set<std::string>{ordinary.id, never_made.sandbox.id})) << "files are in a volume";
  SandboxFilter filter;
  filter.with_volumes = false;
  EXPECT_EQ(must(store_->list_sandboxes("default", Page{0, 100}, filter)).size(), 1u);
  filter = {{}, {{kVolumeName, "v"}}};
  EXPECT_EQ(must(store_->list_sandboxes("default", Page{0, 100}, filter)).size(), 1u);
  EXPECT_EQ(must(store_->list_sandboxes("default", Page{0, 100}, {})).size(), 3u);
}

TEST_F(StoreTest, KeysAreFoundByHashAndTheLastOneStays) {
  EXPECT_EQ(must(store_->count_keys()), 0u);
  must(store_->put_key({"key1", "default", "first", "hash1", "sk_a", 1, 0}));
  EXPECT_EQ(must(store_->find_key_by_hash("hash1")).id, "key1");
  EXPECT_EQ(code(store_->find_key_by_hash("hash2")), "key_not_found");
  EXPECT_EQ(code(store_->revoke_key("default", "key1")), "last_key");
  must(store_->put_key({"key2", "default", "second", "hash2", "sk_b", 2, 0}));
  EXPECT_EQ(code(store_->revoke_key("other", "key1")), "key_not_found");
  const Key revoked = must(store_->revoke_key("default", "key1"));
  EXPECT_NE(revoked.revoked_ms, 0);
  EXPECT_EQ(must(store_->revoke_key("default", "key1")).revoked_ms, revoked.revoked_ms);
  EXPECT_EQ(must(store_->list_keys("default")).size(), 2u);
}

TEST_F(StoreTest, WhatNodeKnowsBetterIsCorrected) {
  const Sandbox sandbox = running();
  EXPECT_FALSE(must(store_->correct_state(sandbox.id, SandboxState::running)));
  EXPECT_TRUE(must(store_->correct_state(sandbox.id, SandboxState::paused)));
  must(store_->accept_change(operation(OperationKind::resume, sandbox.id), std::nullopt));
  EXPECT_FALSE(must(store_->correct_state(sandbox.id, SandboxState::running))) << "an operation is under way";
  const auto owned = must(store_->owned_sandboxes());
  ASSERT_EQ(owned.size(), 1u);
  EXPECT_TRUE(owned[0].busy);
}

TEST_F(StoreTest, WhatNodeKeepsForItIsRead) {
  const Kept full{{{"a", "1"}, {"space.volume", "data"}}, 60, {5, 6, true}, R"({"secure":false})", {80, 8080}};
  const auto back = decode_kept(encode(full));
  ASSERT_TRUE(back) << describe(back.error());
  EXPECT_EQ(back->metadata, full.metadata);
  EXPECT_EQ(back->time_limit_s, 60);
  EXPECT_EQ(back->rest, full.rest);
  EXPECT_EQ(back->settings, full.settings);
  EXPECT_EQ(back->public_ports, full.public_ports);
  EXPECT_EQ(encode(Kept()), "");
  EXPECT_TRUE(decode_kept("")->metadata.empty());
  EXPECT_TRUE(decode_kept(R"({"of_a_later_version":1})"));
  for (const char* bad : {"[]", R"({"metadata":1})", R"({"public_ports":[0]})", R"({"time_limit_s":-1})"})
    EXPECT_FALSE(decode_kept(bad)) << bad;
  Kept longer = full;
  longer.settings = std::string(kMostKept, 'x');
  EXPECT_LE(encode(longer).size(), kMostKept);
  EXPECT_EQ(decode_kept(encode(longer))->metadata, full.metadata);
}

TEST_F(StoreTest, OnlyWhatWasNeverThereIsTakenUp) {
  const Sandbox known = running({{"a", "1"}}, 60), deleted = running();
  const Accepted removal = must(store_->accept_change(operation(OperationKind::remove, deleted.id), std::nullopt));
  finish(removal.operation, OperationState::succeeded, SandboxState::deleted);
  Sandbox changed = known;
  changed.metadata = {{"b", "2"}};
  EXPECT_TRUE(must(store_->adopt_sandbox(changed, Kept())));
  EXPECT_EQ(must(store_->find_any_sandbox(known.id)).metadata, known.metadata) << "as the store has it";
  EXPECT_FALSE(must(store_->adopt_sandbox(deleted, Kept())));
  Retention none;
  none.operations_ms = -1'000;
  must(store_->prune(none));
  ASSERT_EQ(code(store_->find_operation("default", removal.operation.id)), "operation_not_found");
  EXPECT_FALSE(must(store_->adopt_sandbox(deleted, Kept()))) << "an event still tells";

  Sandbox ended = known;
  ended.id = new_id();
  ended.state = SandboxState::ended;
  ended.end_reason = "vmm_exited";
  EXPECT_TRUE(must(store_->adopt_sandbox(ended, {{{"space.volume", "data"}}, 60, {}, "", {}})));
  const Sandbox found = must(store_->find_any_sandbox(ended.id));
  EXPECT_EQ(found.state, SandboxState::ended);
  EXPECT_EQ(found.ends_ms, 0);
  EXPECT_EQ(must(store_->list_sandboxes("default", {}, {{}, {{"space.volume", "data"}}, true})).size(), 1u);
  EXPECT_EQ(must(store_->kept_settings(ended.id)).size(), 1u);

  Sandbox moved = known;  // its end was put off by hand, and is not what its limit says
  moved.id = new_id();
  Kept later;
  later.time_limit_s = 1;
  later.ends_ms = clock_.wall_ms() + 86'400'000;
  EXPECT_TRUE(must(store_->adopt_sandbox(moved, later)));
  EXPECT_EQ(must(store_->find_any_sandbox(moved.id)).ends_ms, later.ends_ms);
  EXPECT_EQ(decode_kept(must(store_->kept_settings(moved.id)).at(moved.id))->ends_ms, later.ends_ms);
  moved.id = new_id();
  later.ends_ms = 0;
  EXPECT_TRUE(must(store_->adopt_sandbox(moved, later)));
  EXPECT_GE(must(store_->find_any_sandbox(moved.id)).ends_ms, clock_.wall_ms() + kLeastAnewMs) << "time to be seen";
  EXPECT_EQ(must(store_->kept_settings("")).at(known.id), R"({"metadata":{"a":"1"},"time_limit_s":60})");
  EXPECT_EQ(must(store_->tenants_without_key()), (std::map<std::string, std::int64_t>{{"default", 4}}));
}

TEST_F(StoreTest, AnOlderPolicyIsReplacedByTheGateways) {
  const Sandbox sandbox = running();
  const std::string open = R"({"policy":{"mode":"open"}})";
  EXPECT_TRUE(must(store_->adopt_egress({sandbox.id, "default", "lineage", 3, open})));
  EXPECT_FALSE(must(store_->adopt_egress({sandbox.id, "default", "lineage", 3, changes::kNoEgress}))) << "not later";
  EXPECT_FALSE(must(store_->adopt_egress({sandbox.id, "other", "lineage", 9, changes::kNoEgress}))) << "not his";
  EXPECT_FALSE(must(store_->adopt_egress({new_id(), "default", "lineage", 9, open})));
  const EgressSettings found = must(store_->find_egress("default", sandbox.id));
  EXPECT_EQ(found.document, open);
  EXPECT_EQ(found.lineage, "lineage");
  EXPECT_EQ(must(store_->put_egress("default", sandbox.id, changes::kNoEgress, 3)).generation, 4);
}

TEST_F(StoreTest, ManyChangesShareATransaction) {
  const auto before = store_->counters();
  int done = 0;
  for (int i = 0; i < 200; ++i) {
    Sandbox sandbox;
    sandbox.id = new_id();
    sandbox.tenant = "default";
    sandbox.template_reference = "base";
    Operation create = operation(OperationKind::create, sandbox.id);
    asio::co_spawn(loop_, store_->accept_create(sandbox, create, std::nullopt),
                   [&](std::exception_ptr, Result<Accepted> result) { done += result.has_value(); });
  }
  loop_.restart();
  loop_.run();
  EXPECT_EQ(done, 200);
  EXPECT_EQ(store_->counters().changes - before.changes, 200u);
  EXPECT_LT(store_->counters().transactions - before.transactions, 100u);
}

TEST_F(StoreTest, AChangeThatFailsTakesNoOtherWithIt) {
  int good = 0, bad = 0;
  for (int i = 0; i < 50; ++i) {
    Key key{"key" + std::to_string(i), "default", "n", i % 2 ? "the same hash" : "hash" + std::to_string(i), "sk_", 1, 0};
    asio::co_spawn(loop_, store_->put_key(key), [&](std::exception_ptr, Result<> result) { ++(result ? good : bad); });
  }
  loop_.restart();
  loop_.run();
  EXPECT_EQ(good, 26);
  EXPECT_EQ(bad, 24);
  EXPECT_EQ(must(store_->count_keys()), 26u);
  EXPECT_EQ(must(store_->events_after("default", 0, 100)).size(), 26u);
}

TEST_F(StoreTest, OneServerADatabase) {
  auto second = open_sqlite_store(path(), loop_.get_executor(), clock_);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, "database_in_use");
}

TEST_F(StoreTest, ALaterSchemaIsRefused) {
  store_.reset();
  {
    auto database = Database::open(path());
    ASSERT_TRUE(database);
    auto changed = run(loop_, (*database)->write<void>([](Session& session) -> Result<> {
      session.exec("UPDATE schema_version SET version = 999");
      return {};
    }));
    ASSERT_TRUE(changed);
  }
  auto opened = open_sqlite_store(path(), loop_.get_executor(), clock_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, "schema_newer");
}

TEST_F(StoreTest, ATenantsEventsAreReadWithoutThoseOfOthers) {
  store_.reset();
  auto database = Database::open(path());
  ASSERT_TRUE(database);
  const auto plan = run(loop_, (*database)->read<std::string>([](Session& session) -> Result<std::string> {
    std::string all;
    for (const auto& [id, parent, unused, detail] : session.query<long long, long long, long long, std::string>(
             "EXPLAIN QUERY PLAN SELECT data FROM events WHERE sequence > :after AND tenant = :tenant ORDER BY sequence LIMIT :limit", 1,
             std::string("acme"), 10))
      all += detail + "; ";
    return all;
  }));
  ASSERT_TRUE(plan);
  EXPECT_NE(plan->find("events_tenant (tenant=? AND rowid>?)"), std::string::npos) << *plan;
}

TEST_F(StoreTest, ADamagedFileIsSaidToBeOne) {
  store_.reset();
  std::filesystem::remove(path().string() + "-wal");
  ASSERT_TRUE(write_file_durable(path(), std::string(8192, 'x')));
  auto opened = open_sqlite_store(path(), loop_.get_executor(), clock_);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, "store_corrupt");
}

TEST_F(StoreTest, FilesAreForTheOwnerAlone) {
  create();
  for (const char* suffix : {"", "-wal", "-shm", ".lock"}) {
    const auto mode = std::filesystem::status(path().string() + suffix).permissions();
    EXPECT_EQ(static_cast<unsigned>(mode) & 077u, 0u) << suffix;
  }
}

TEST(States, TablesAllowOnlyWhatTheySay) {
  EXPECT_TRUE(can_move(SandboxState::creating, SandboxState::running));
  EXPECT_FALSE(can_move(SandboxState::deleting, SandboxState::running));
  EXPECT_FALSE(can_move(SandboxState::deleted, SandboxState::running));
  EXPECT_FALSE(can_move(OperationState::succeeded, OperationState::failed));
  for (const char* name : {"creating", "running", "paused", "deleting", "deleted", "failed", "ended", "suspended", "stopped"})
    EXPECT_EQ(to_string(*sandbox_state(name)), name);
  EXPECT_EQ(to_string(*operation_kind("delete")), "delete");
  EXPECT_FALSE(operation_state("done"));
}

}  // namespace
}  // namespace space::control
