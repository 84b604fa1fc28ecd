#include "wire/ports.h"

#include <gtest/gtest.h>

namespace space::wire {
namespace {

const std::string kId = "abcdefghij0123456789";

TEST(Ports, PathsNameSandboxPortAndTheRestAsItCame) {
  const auto rest = [](const std::string& tail) {
    const auto found = port_of_path("/v1/sandboxes/" + kId + "/ports/" + tail);
    if (!found) return std::string("none");
    EXPECT_EQ(found->sandbox, kId);
    return std::to_string(found->port) + " " + found->target;
  };
  EXPECT_EQ(rest("8080"), "8080 /");
  EXPECT_EQ(rest("8080/"), "8080 /");
  EXPECT_EQ(rest("8080?a=b"), "8080 /?a=b");
  EXPECT_EQ(rest("65535//x/../%2e?y#"), "65535 //x/../%2e?y#");
  for (const char* wrong : {"", "/", "0", "080", "65536", "8080x", "+80", "-1", "8e1", "80%20", " 80", "99999999999999999999"})
    EXPECT_EQ(rest(wrong), "none") << wrong;
  EXPECT_FALSE(port_of_path("/v1/sandboxes/" + kId + "/port/80"));
  EXPECT_FALSE(port_of_path("/v1/sandboxes/short/ports/80"));
  EXPECT_FALSE(port_of_path("//v1/sandboxes/" + kId + "/ports/80"));
  EXPECT_FALSE(port_of_path("/v1/sandboxes/" + kId + "%2fports/80"));
  EXPECT_TRUE(is_port_path("/v1/sandboxes/short/ports/x"));
  EXPECT_FALSE(is_port_path("/v1/sandboxes/short/files/ports/"));
}

TEST(Ports, HostsAreOneLabelBeforeTheDomain) {
  const auto found = port_of_host("8080-" + kId + ".box.example.org", "box.example.org");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->port, 8080);
  EXPECT_EQ(found->sandbox, kId);
  EXPECT_TRUE(port_of_host("1-" + kId + ".box.example.org:8443", "box.example.org"));
  for (const std::string& wrong : std::initializer_list<std::string>{
           "8080-" + kId + ".box.example.org.", "8080-" + kId + ".box.example.org.evil.test", "8080-" + kId + ".evil.test",
           "080-" + kId + ".box.example.org", "0-" + kId + ".box.example.org", "65536-" + kId + ".box.example.org",
           "8080-ABCDEFGHIJ0123456789.box.example.org", kId + ".box.example.org",
           "8080-" + kId + ".box.example.org:", "8080-" + kId + ".box.example.org:x", "8080-" + kId + ".box.example.org:80:80",
           "8080-" + kId + "-x.box.example.org", "a.8080-" + kId + ".box.example.org", std::string("."), std::string("-."), std::string()})
    EXPECT_FALSE(port_of_host(wrong, "box.example.org")) << wrong;
  EXPECT_FALSE(port_of_host("8080-" + kId + ".", ""));
}

}  // namespace
}  // namespace space::wire
