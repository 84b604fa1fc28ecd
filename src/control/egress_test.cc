// Changes of a policy between store and gateway: what a gateway that died finds announced, and who brings it to its end.
#include "control/egress.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/file.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "control/sqlite_store.h"
#include "control/testing.h"
#include "http/router.h"
#include "http/server.h"

namespace space::control {
namespace {

// Keeps the gateway's promises about changes (docs/egress.md), and can be begun anew.
class FakeGateway {
 public:
  struct Box {
    std::int64_t generation = 0;
    std::set<std::string> changes;
    bool held = false;
  };

  FakeGateway(asio::any_io_executor executor, std::filesystem::path socket) : executor_(executor), socket_(std::move(socket)) {
    router_.add("GET", "/sandboxes", [this](http::Exchange& exchange) -> Task<> {
      json::array list;
      for (const auto& [id, box] : boxes) {
        json::array changes;
        for (const std::string& change : box.changes) changes.emplace_back(change);
        list.push_back(json::object{{"sandbox", id}, {"generation", box.generation}, {"changes", std::move(changes)}, {"held", box.held}});
      }
      const json::object body{{"sandboxes", std::move(list)}};
      co_return co_await exchange.reply(http::json_response(200, json::serialize(body)));
    });
    router_.add("PUT", "/sandboxes/{id}", [this](http::Exchange& exchange) -> Task<> {
      CO_TRY(const std::string text, co_await exchange.read_body(1 << 20));
      CO_TRY(const json::object body, parse_json_object(text));
      Box& box = boxes[exchange.param("id")];
      const std::int64_t generation = body.at("generation").as_int64();
      if (generation < box.generation) co_return fail(ErrorKind::conflict, "stale_generation", "a later one is in force");
      box.generation = generation;
      if (const auto* settles = body.if_contains("settles"))
        for (const json::value& change : settles->as_array()) settle(box, std::string(change.as_string()));
      if (box.held) co_return fail(ErrorKind::unavailable, "policy_held", "another change has not ended");
      co_return co_await exchange.reply(http::json_response(200, "{}"));
    });
    router_.add("PUT", "/sandboxes/{id}/changes/{change}", [this](http::Exchange& exchange) -> Task<> {
      boxes[exchange.param("id")].changes.insert(exchange.param("change"));
      co_return co_await exchange.reply(http::json_response(200, "{}"));
    });
    router_.add("DELETE", "/sandboxes/{id}/changes/{change}", [this](http::Exchange& exchange) -> Task<> {
      settle(boxes[exchange.param("id")], exchange.param("change"));
      co_return co_await exchange.reply(http::json_response(200, "{}"));
    });
    router_.add("DELETE", "/sandboxes/{id}", [this](http::Exchange& exchange) -> Task<> {
      boxes.erase(exchange.param("id"));
      co_return co_await exchange.reply(http::json_response(200, "{}"));
    });
  }

  void up() {
    for (auto& [id, box] : boxes) box.held = !box.changes.empty();
    server_ = std::make_unique<http::Server>(executor_, [this](http::Exchange& exchange) { return router_(exchange); });
    auto listener = listen_unix(socket_, SOCK_STREAM, 0600);
    ASSERT_TRUE(listener && server_->serve(std::move(*listener)));
  }
  Task<> down() {
    co_await server_->stop(std::chrono::milliseconds(0));
    server_.reset();
    std::filesystem::remove(socket_);
    co_return Result<>();
  }

  std::map<std::string, Box> boxes;

 private:
  static void settle(Box& box, const std::string& change) {
    box.changes.erase(change);
    if (box.changes.empty()) box.held = false;
  }
  asio::any_io_executor executor_;
  std::filesystem::path socket_;
  http::Router router_;
  std::unique_ptr<http::Server> server_;
};

class EgressTest : public ::testing::Test {
 protected:
  EgressTest()
      : folder_(std::move(*TempDir::make(std::filesystem::temp_directory_path(), "space-egress-"))),
        store_(std::move(*open_sqlite_store(folder_.path() / "space.db", loop_.get_executor(), system_clock()))),
        gateway_(loop_.get_executor(), folder_.path() / "egress.sock"),
        egress_(std::make_unique<Egress>(loop_.get_executor(), (folder_.path() / "egress.sock").string())) {
    gateway_.up();
    Sandbox sandbox;
    sandbox.id = id_;
    sandbox.tenant = "default";
    sandbox.template_reference = "base";
    sandbox.egress = R"({"policy":{"mode":"open"}})";
    Operation create;
    create.id = new_id();
    create.tenant = "default";
    create.sandbox = id_;
    create.kind = OperationKind::create;
    must(store_->accept_create(std::move(sandbox), std::move(create), std::nullopt));
    must(egress_->reconcile(*store_, true));
    EXPECT_EQ(box().generation, 1);
  }
  ~EgressTest() override { must(gateway_.down()); }

  template <class T>
  T must(Task<T> task) {
    auto result = testing::run(loop_, std::move(task));
    if (!result) ADD_FAILURE() << describe(result.error());
    if constexpr (std::is_void_v<T>)
      return;
    else
      return result ? std::move(*result) : T{};
  }
  FakeGateway::Box& box() { return gateway_.boxes[id_]; }
  EgressSettings stored() { return must(store_->put_egress("default", id_, R"({"policy":{"mode":"none"}})", std::nullopt)); }
  void restart_gateway() {
    must(gateway_.down());
    gateway_.up();
  }

  const std::string id_ = new_id();
  asio::io_context loop_{1};
  TempDir folder_;
  std::unique_ptr<Store> store_;
  FakeGateway gateway_;
  std::unique_ptr<Egress> egress_;
};

TEST_F(EgressTest, AGatewayThatDiesWithinAChangeHoldsTheSandboxUntilItKnowsWhatCameOfIt) {
  auto change = must(egress_->announce(id_));
  ASSERT_TRUE(change);
  EXPECT_EQ(box().changes, std::set<std::string>{change->id()});
  const EgressSettings settings = stored();
  restart_gateway();
  EXPECT_TRUE(box().held) << "it has what was replaced in the store";
  // Whoever makes the change may be about to tell it, or to write to the store: nobody settles it behind their back.
  must(egress_->reconcile(*store_, true));
  EXPECT_EQ(box().generation, 2);
  EXPECT_TRUE(box().held);
  must(egress_->conclude(settings, change->id()));
  EXPECT_FALSE(box().held);
  EXPECT_TRUE(box().changes.empty());
}

TEST_F(EgressTest, AChangeIsNotAppliedWhileAnotherOneHoldsTheSandbox) {
  const auto change = must(egress_->announce(id_)), other = must(egress_->announce(id_));
  const EgressSettings settings = stored();
  restart_gateway();
  const auto early = testing::run(loop_, egress_->conclude(settings, change->id()));
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, "policy_held");
  EXPECT_EQ(early.error().kind, ErrorKind::unavailable) << "whoever changes it tries again";
  EXPECT_EQ(box().changes, std::set<std::string>{other->id()});
  auto withdrawn = [&]() -> Task<> {
    co_await egress_->withdraw(id_, other->id());
    co_return Result<>();
  };
  must(withdrawn());
  must(egress_->conclude(settings, change->id()));
  EXPECT_FALSE(box().held);
}

TEST_F(EgressTest, AChangeOfAProcessThatDiedIsSettledByTheStore) {
  must(egress_->announce(id_));  // nobody has it any more: it was not written to the store
  restart_gateway();
  EXPECT_TRUE(box().held);
  must(egress_->reconcile(*store_, true));
  EXPECT_FALSE(box().held);
  EXPECT_EQ(box().generation, 1);
  must(egress_->announce(id_));
  stored();  // and now it was
  restart_gateway();
  must(egress_->reconcile(*store_, true));
  EXPECT_FALSE(box().held);
  EXPECT_EQ(box().generation, 2);
  // A gateway that knows of a later policy than the store, as after a restored backup, is not held for ever.
  must(egress_->announce(id_));
  box().generation = 9;
  restart_gateway();
  must(egress_->reconcile(*store_, true));
  EXPECT_FALSE(box().held);
}

TEST_F(EgressTest, ChangesSideBySideEndEachForItself) {
  const auto first = must(egress_->announce(id_)), second = must(egress_->announce(id_)), third = must(egress_->announce(id_));
  const EgressSettings earlier = stored(), later = stored();
  must(egress_->conclude(later, second->id()));
  EXPECT_EQ(box().changes, (std::set<std::string>{first->id(), third->id()}));
  must(egress_->conclude(earlier, first->id()));  // the later one stays
  EXPECT_EQ(box().generation, 3);
  EXPECT_EQ(box().changes, std::set<std::string>{third->id()});
  auto withdrawn = [&]() -> Task<> {
    co_await egress_->withdraw(id_, third->id());
    co_return Result<>();
  };
  must(withdrawn());
  EXPECT_TRUE(box().changes.empty());
}

}  // namespace
}  // namespace space::control
