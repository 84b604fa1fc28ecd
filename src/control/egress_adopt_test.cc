// What the gateway and the store tell each other, with a gateway that only notes it.
#include "control/egress.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"
#include "base/unix_socket.h"
#include "control/sqlite_store.h"
#include "control/testing.h"
#include "http/router.h"
#include "http/server.h"

namespace space::control {
namespace {

using testing::run;

class EgressAdoptTest : public ::testing::Test {
 protected:
  EgressAdoptTest()
      : folder_(std::move(*TempDir::make(std::filesystem::temp_directory_path(), "space-egress-"))),
        store_(std::move(*open_sqlite_store(folder_.path() / "space.db", loop_.get_executor(), system_clock()))),
        server_(loop_.get_executor(), [this](http::Exchange& exchange) { return router_(exchange); }),
        egress_(loop_.get_executor(), (folder_.path() / "egress.sock").string()) {
    router_.add("GET", "/sandboxes", [this](http::Exchange& exchange) -> Task<> {
      const json::object body{{"sandboxes", known_}};
      co_return co_await exchange.reply(http::json_response(200, json::serialize(body)));
    });
    for (const char* method : {"PUT", "DELETE"})
      router_.add(method, "/sandboxes/{id}", [this](http::Exchange& exchange) -> Task<> {
        CO_TRY_VOID(co_await exchange.read_body(1 << 20));
        calls_.push_back(exchange.method() + " " + exchange.param("id"));
        co_return co_await exchange.reply(http::json_response(200, "{}"));
      });
    auto listener = listen_unix(folder_.path() / "egress.sock", SOCK_STREAM, 0600);
    EXPECT_TRUE(listener && server_.serve(std::move(*listener)));
  }

  std::string sandbox() {
    Sandbox one;
    one.id = new_id();
    one.tenant = "default";
    one.state = SandboxState::running;
    EXPECT_TRUE(run(loop_, store_->adopt_sandbox(one, Kept())).value());
    return one.id;
  }
  void knows(const std::string& id, std::int64_t generation) {
    known_.push_back(json::object{{"sandbox", id},
                                  {"tenant", "default"},
                                  {"lineage", "root"},
                                  {"generation", generation},
                                  {"policy", {{"mode", "open"}}},
                                  {"names", 3}});
  }

  TempDir folder_;
  asio::io_context loop_;
  std::unique_ptr<Store> store_;
  http::Router router_;
  http::Server server_;
  Egress egress_;
  json::array known_;
  std::vector<std::string> calls_;
};

TEST_F(EgressAdoptTest, ALaterPolicyOfTheGatewaysIsTakenUp) {
  const std::string lost = sandbox(), older = sandbox(), never = sandbox();
  ASSERT_TRUE(run(loop_, store_->put_egress("default", older, changes::kNoEgress, std::nullopt)));
  knows(lost, 4);
  knows(older, 2);
  knows(never, 0);
  ASSERT_TRUE(run(loop_, egress_.reconcile(*store_, true)));
  EXPECT_TRUE(calls_.empty()) << calls_.front();
  for (const auto& [id, generation] : {std::pair{lost, 4}, {older, 2}}) {
    const EgressSettings found = run(loop_, store_->find_egress("default", id)).value();
    EXPECT_EQ(found.generation, generation);
    EXPECT_EQ(found.lineage, "root");
    EXPECT_EQ(found.document, R"({"policy":{"mode":"open"}})");
  }
  EXPECT_EQ(run(loop_, store_->find_egress("default", never)).value().generation, 0);
}

TEST_F(EgressAdoptTest, NothingIsRemovedBeforeTheStoreKnowsAllThereIs) {
  const std::string unknown = new_id(), told = sandbox();
  ASSERT_TRUE(run(loop_, store_->put_egress("default", told, changes::kNoEgress, std::nullopt)));
  knows(unknown, 4);
  ASSERT_TRUE(run(loop_, egress_.reconcile(*store_, false)));
  EXPECT_EQ(calls_, std::vector<std::string>{"PUT " + told});
  calls_.clear();
  ASSERT_TRUE(run(loop_, egress_.reconcile(*store_, true)));
  EXPECT_EQ(calls_, (std::vector<std::string>{"PUT " + told, "DELETE " + unknown}));
}

}  // namespace
}  // namespace space::control
