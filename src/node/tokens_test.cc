#include "node/tokens.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"

namespace space::node {
namespace {

struct AttachTokenTest : ::testing::Test {
  TempDir dir = TempDir::make("/tmp", "space-tokens-test").value();
  TokenKey key = TokenKey::open(dir.path() / "token.key").value();
  SandboxRecord record;
  std::string session = new_id();
  static constexpr std::int64_t now = 1'800'000'000'000;
  void SetUp() override {
    record.id = new_id();
    record.tenant = "acme";
  }
  std::string code(const TokenKey& by, const SandboxRecord& of, std::string_view which, std::string_view token, std::int64_t at = now) {
    const auto checked = by.check_attach(of, which, token, at);
    return checked ? "good" : checked.error().code;
  }
};

TEST_F(AttachTokenTest, ItIsKnownAgainByAnotherProcessWithTheSameKey) {
  const AttachToken made = key.attach_token(record, session, now);
  EXPECT_EQ(code(TokenKey::open(dir.path() / "token.key").value(), record, session, made.token), "good");
  EXPECT_NE(key.attach_token(record, session, now).token, made.token) << "each is another one";
}

TEST_F(AttachTokenTest, ItOpensItsOwnSessionOnly) {
  const std::string token = key.attach_token(record, session, now).token;
  EXPECT_EQ(code(key, record, new_id(), token), "token_invalid");
  SandboxRecord other = record;
  other.id = new_id();
  EXPECT_EQ(code(key, other, session, token), "token_invalid");
  other = record;
  other.tenant = "else";
  EXPECT_EQ(code(key, other, session, token), "token_invalid");
  TempDir elsewhere = TempDir::make("/tmp", "space-tokens-test").value();
  EXPECT_EQ(code(TokenKey::open(elsewhere.path() / "token.key").value(), record, session, token), "token_invalid");
}

TEST_F(AttachTokenTest, ALoadThatGoesBackVoidsIt) {
  const std::string token = key.attach_token(record, session, now).token;
  ++record.epoch;
  EXPECT_EQ(code(key, record, session, token), "token_invalid");
}

TEST_F(AttachTokenTest, ItEndsAtItsTimeAndSaysSo) {
  const AttachToken made = key.attach_token(record, session, now);
  EXPECT_EQ(made.expires_ms, now + kAttachTokenLifeMs);
  EXPECT_EQ(code(key, record, session, made.token, made.expires_ms - 1), "good");
  EXPECT_EQ(code(key, record, session, made.token, made.expires_ms), "token_expired");
}

TEST_F(AttachTokenTest, EveryChangeOfItIsNoticed) {
  const std::string token = key.attach_token(record, session, now).token;
  for (std::size_t i = 3; i + 1 < token.size(); i += 5) {  // the last character has bits that mean nothing
    std::string changed = token;
    changed[i] = changed[i] == 'A' ? 'B' : 'A';
    EXPECT_EQ(code(key, record, session, changed), "token_invalid") << i;
  }
  for (const std::string& bad : {std::string(), std::string("at_"), token.substr(3), token.substr(0, token.size() - 4), token + "AAAA",
                                 "at_" + std::string(43, 'A'), "at_" + std::string(4096, 'A')})
    EXPECT_EQ(code(key, record, session, bad), "token_invalid") << bad;
}

}  // namespace
}  // namespace space::node
