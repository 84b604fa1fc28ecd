#include "e2b/header_rules.h"

#include <gtest/gtest.h>

#include "e2b/network.h"

namespace space::e2b {
namespace {

json::value rules(const char* text) { return json::parse(text); }

TEST(HeaderRules, BecomeValuesAndPlaceholders) {
  const json::value given = rules(
      R"({"API.example.org":[{"transform":{"headers":{"X-Key":"a-secret-value","Authorization":"Bearer ${e2b.secrets.OpenAI}"}}}],"*.other.org":[]})");
  const auto read = read_header_rules(&given);
  ASSERT_TRUE(read) << read.error().message;
  ASSERT_EQ(read->size(), 2u);
  EXPECT_EQ((*read)[0].host, "api.example.org");
  EXPECT_EQ((*read)[0].value, "a-secret-value");
  EXPECT_EQ((*read)[1].secret, "openai");
  EXPECT_EQ((*read)[1].prefix, "Bearer ");
  EXPECT_EQ((*read)[1].value, "");
  const std::string shown = json::serialize(redacted_rules(&given));
  EXPECT_EQ(shown.find("a-secret-value"), std::string::npos);
  EXPECT_NE(shown.find(R"("X-Key":"***")"), std::string::npos);
  EXPECT_NE(shown.find("${e2b.secrets.OpenAI}"), std::string::npos);
}

TEST(HeaderRules, NothingIsNothing) {
  const json::value null;
  EXPECT_TRUE(read_header_rules(nullptr)->empty());
  EXPECT_TRUE(read_header_rules(&null)->empty());
}

TEST(HeaderRules, RefuseWhatCannotBeDone) {
  for (const char* wrong :
       {R"([])", R"({"a b":[{"transform":{"headers":{"A":"12345678"}}}]})", R"({"*":[{"transform":{"headers":{}}}]})",
        R"({"a.org":[{"transform":{}}]})", R"({"a.org":[{"transform":{"headers":{}}},{"transform":{"headers":{}}}]})",
        R"({"a.org":[{"transform":{"headers":{"A:":"12345678"}}}]})", R"({"a.org":[{"transform":{"headers":{"A":"short"}}}]})",
        R"({"a.org":[{"transform":{"headers":{"A":"12345678\r\nB: c"}}}]})", R"({"a.org":[{"transform":{"headers":{"A":5}}}]})",
        R"({"a.org":[{"transform":{"headers":{"A":"${e2b.identity.tokens.x}"}}}]})",
        R"({"a.org":[{"transform":{"headers":{"A":"${e2b.secrets.x} y"}}}]})",
        R"({"a.org":[{"transform":{"headers":{"A":"${e2b.secrets.}"}}}]})",
        R"({"*.a.org":[{"transform":{"headers":{}}}],"b.a.org":[{"transform":{"headers":{}}}]})"}) {
    const json::value given = rules(wrong);
    const auto read = read_header_rules(&given);
    EXPECT_FALSE(read) << wrong;
    if (!read) {
      EXPECT_EQ(read.error().kind, ErrorKind::invalid_argument) << wrong;
    }
  }
}

TEST(HeaderRules, WhatIsBoundIsNotPassedUnread) {
  const json::object network = json::parse(R"({"allowOut":["api.a.org","b.org"],"denyOut":["0.0.0.0/0"]})").get_object();
  const json::array bindings = json::parse(R"([{"credential":"c","name":"*.a.org","port":443,"header":{"name":"A"}}])").get_array();
  const auto document = egress_document(network, true, bindings);
  ASSERT_TRUE(document);
  const json::value read = json::parse(*document);
  for (const json::value& rule : read.at("policy").at("rules").get_array()) {
    const bool unread = rule.get_object().contains("tunnel");
    if (rule.at("protocol") == json::value("https")) {
      EXPECT_EQ(unread, rule.at("name") == json::value("b.org"));
    }
  }
  EXPECT_EQ(read.at("credentials").get_array().size(), 1u);
}

}  // namespace
}  // namespace space::e2b
