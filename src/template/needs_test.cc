#include "template/needs.h"

#include <gtest/gtest.h>

namespace space::tmpl {
namespace {

TEST(Needs, WhoNeedsATemplateIsNamed) {
  std::vector<Need> needs{{"sandbox", "one", "suspended", "sha256:a", "k1"}, {"checkpoint", "two", "", "sha256:b", "k2"}};
  EXPECT_TRUE(check_unneeded("base:latest", "sha256:c", needs));
  const auto refused = check_unneeded("base:latest", "sha256:a", needs);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "template_in_use");
  EXPECT_EQ(refused.error().kind, ErrorKind::conflict);
  EXPECT_NE(refused.error().message.find("sandbox one (suspended)"), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().message.find("two"), std::string::npos);
  for (int i = 0; i < 10; ++i) needs.push_back({"checkpoint", "c" + std::to_string(i), "", "sha256:a", "k1"});
  EXPECT_NE(check_unneeded("base:latest", "sha256:a", needs).error().message.find("and 6 more"), std::string::npos);
  EXPECT_EQ(base_keys(needs), (std::set<std::string>{"k1", "k2"}));
}

}  // namespace
}  // namespace space::tmpl
