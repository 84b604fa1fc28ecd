#include "api/certificates.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "http/tls.h"

namespace space::api {
namespace {

TEST(Certificates, AreMadeOnceForADomain) {
  const auto folder = TempDir::make(std::filesystem::temp_directory_path(), "space-tls-").value();
  const auto first = own_certificates(folder.path(), "one.test");
  ASSERT_TRUE(first) << describe(first.error());
  EXPECT_TRUE(http::TlsContext::from_files(first->certificate, first->key));
  const std::string authority = read_file(first->authority, 1 << 16).value(), server = read_file(first->certificate, 1 << 16).value();
  ASSERT_TRUE(own_certificates(folder.path(), "one.test"));
  EXPECT_EQ(read_file(first->authority, 1 << 16).value(), authority);
  EXPECT_EQ(read_file(first->certificate, 1 << 16).value(), server);
  EXPECT_EQ(std::filesystem::status(first->key).permissions(), std::filesystem::perms(0600));
  // An authority is good for its own domain alone.
  ASSERT_TRUE(own_certificates(folder.path(), "two.test"));
  EXPECT_NE(read_file(first->authority, 1 << 16).value(), authority);
}

TEST(Certificates, DomainsAreNames) {
  for (const char* good : {"a.b", "sandboxes.example.org", "e2b.test"}) EXPECT_TRUE(is_domain(good)) << good;
  for (const char* bad : {"a", "A.b", ".a.b", "a..b", "a.b.", "a b.c", "*.a.b"}) EXPECT_FALSE(is_domain(bad)) << bad;
}

}  // namespace
}  // namespace space::api
