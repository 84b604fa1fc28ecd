#include "agent/authority.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

namespace space::agent {
namespace {
namespace fs = std::filesystem;

const std::string kOne = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n";
const std::string kTwo = "-----BEGIN CERTIFICATE-----\ndHdvdHdvdHdv\n-----END CERTIFICATE-----\n";
const std::string kOthers = "-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----\n";

class AuthorityTest : public ::testing::Test {
 protected:
  AuthorityTest() : dir_(*TempDir::make(fs::temp_directory_path(), "authority-")), root_(dir_.path().string()) {
    fs::create_directories(root_ + "/etc/ssl/certs");
  }
  std::string bundle() const { return *read_file(root_ + kAuthorityBundle, 1 << 20); }
  std::string own() const { return *read_file(root_ + kAuthorityFile, 1 << 20); }
  void put_bundle(const std::string& text) const { std::ofstream(root_ + kAuthorityBundle) << text; }
  static std::size_t count(const std::string& text, const std::string& what) {
    std::size_t found = 0;
    for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; ++at) ++found;
    return found;
  }

  TempDir dir_;
  std::string root_;
};

TEST_F(AuthorityTest, ReplacesTheBlockWhereItIs) {
  std::string room = "# SPACE egress gateway";
  room.resize(kAuthorityBlock, ' ');
  put_bundle(kOthers + room);
  struct stat before = {}, after = {};
  ASSERT_EQ(::stat((root_ + kAuthorityBundle).c_str(), &before), 0);
  for (const std::string& pem : {kOne, kTwo, kOne, kTwo}) {
    ASSERT_TRUE(install_authority(root_, pem));
    EXPECT_EQ(bundle(), kOthers + authority_block(pem));
    EXPECT_EQ(own(), authority_block(pem));
  }
  ASSERT_EQ(::stat((root_ + kAuthorityBundle).c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(AuthorityTest, AddsABlockWhereThereIsNone) {
  put_bundle("-----BEGIN CERTIFICATE-----\nb3RoZXI=\n-----END CERTIFICATE-----");  // and no line end
  ASSERT_TRUE(install_authority(root_, kOne));
  EXPECT_EQ(bundle(), kOthers + authority_block(kOne));
}

TEST_F(AuthorityTest, LeavesABundleThatHoldsTheCertificate) {
  put_bundle(kOne + kOthers);  // as update-ca-certificates writes it
  ASSERT_TRUE(install_authority(root_, kOne));
  EXPECT_EQ(bundle(), kOne + kOthers);
  ASSERT_TRUE(install_authority(root_, kTwo));
  ASSERT_TRUE(install_authority(root_, kTwo));
  EXPECT_EQ(count(bundle(), kTwo), 1U);
}

TEST_F(AuthorityTest, MakesWhatIsMissingAndFollowsNoLink) {
  fs::remove_all(root_ + "/etc");
  ASSERT_TRUE(install_authority(root_, kOne));
  EXPECT_EQ(bundle(), authority_block(kOne));
  fs::remove(root_ + kAuthorityBundle);
  std::ofstream(root_ + "/precious") << "mine";
  fs::create_symlink(root_ + "/precious", root_ + kAuthorityBundle);
  ASSERT_TRUE(install_authority(root_, kTwo));
  EXPECT_EQ(*read_file(root_ + "/precious", 100), "mine");
  EXPECT_EQ(bundle(), authority_block(kTwo));
}

TEST_F(AuthorityTest, RefusesWhatIsNoCertificate) {
  for (const std::string& pem :
       {std::string("no certificate"), std::string("-----BEGIN PRIVATE KEY-----\n"), kOne + std::string(kAuthorityBlock, 'a')})
    EXPECT_EQ(install_authority(root_, pem).error().code, "invalid_field");
  EXPECT_FALSE(fs::exists(root_ + kAuthorityBundle));
}

}  // namespace
}  // namespace space::agent
