#include "api/keyring.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "control/sqlite_store.h"
#include "control/testing.h"

namespace space::api {
namespace {

using control::testing::run;

// The key is read, and revoked before that is heard of: it must not be remembered as it was.
TEST(KeyRing, AKeyThatIsRevokedWhileItIsReadIsNotRememberedAsGood) {
  const TempDir folder = TempDir::make(std::filesystem::temp_directory_path(), "space-keyring-").value();
  asio::io_context slow, quick;
  const auto store = std::move(*control::open_sqlite_store(folder.path() / "space.db", quick.get_executor(), system_clock()));
  KeyRing writer(*store, system_clock()), ring(*store, system_clock());
  (void)run(quick, writer.create("default", "stays")).value();  // the last one cannot be revoked
  const NewKey made = run(quick, writer.create("default", "goes")).value();

  std::optional<Result<control::Key>> first;
  asio::co_spawn(slow, ring.authenticate(made.secret, control::Scope::run),
                 [&](std::exception_ptr, Result<control::Key> result) { first = std::move(result); });
  slow.poll();                                                  // it asks
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has been answered, and has not heard yet
  ASSERT_TRUE(run(quick, ring.revoke("default", made.key.id)));
  while (!first) slow.run_one();
  const auto again = run(quick, ring.authenticate(made.secret, control::Scope::run));
  ASSERT_FALSE(again) << "a revoked key";
  EXPECT_EQ(again.error().code, "key_revoked");
}

}  // namespace
}  // namespace space::api
