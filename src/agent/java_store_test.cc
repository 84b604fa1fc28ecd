#include "agent/java_store.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/encoding.h"
#include "base/file.h"

namespace space::agent {
namespace {
namespace fs = std::filesystem;

std::string number(std::uint64_t value, int bytes) {
  std::string out;
  while (bytes-- > 0) out.push_back(static_cast<char>(value >> (8 * bytes)));
  return out;
}

std::string trusted(const std::string& alias, const std::string& der) {
  return number(2, 4) + number(alias.size(), 2) + alias + number(1'700'000'000'000, 8) + number(5, 2) + "X.509" + number(der.size(), 4) +
         der;
}

std::string key(const std::string& alias) {
  return number(1, 4) + number(alias.size(), 2) + alias + number(5, 8) + number(4, 4) + "keys" + number(1, 4) + number(5, 2) + "X.509" +
         number(3, 4) + "one";
}

std::string store(std::uint32_t count, const std::string& entries) {
  return number(0xfeedfeed, 4) + number(2, 4) + number(count, 4) + entries + std::string(20, 'd');
}

std::string pem(const std::string& der) {
  return "-----BEGIN CERTIFICATE-----\n" + base64_encode(as_bytes(der)) + "\n-----END CERTIFICATE-----\n";
}

const std::string kOther = trusted("debian:some_root.pem", "a public root"), kDebians = trusted("debian:space-egress.pem", "the builder's");

TEST(JavaStore, HasOneAuthorityBesidesWhatWasThere) {
  const auto made = java_store_with(store(3, kOther + kDebians + key("mine")), "first");
  ASSERT_TRUE(made);
  EXPECT_EQ(made->substr(8, 4), number(3, 4));
  EXPECT_TRUE(made->find(kOther) != std::string::npos && made->find(key("mine")) != std::string::npos);
  EXPECT_EQ(made->find("the builder's"), std::string::npos);
  const auto next = java_store_with(*made, "one that is longer");
  ASSERT_TRUE(next);
  EXPECT_EQ(next->size(), made->size());
  EXPECT_EQ(next->find("first"), std::string::npos);
  EXPECT_EQ(*java_store_with(*next, "first"), *made);
}

TEST(JavaStore, StaysWhereItKnowsTheCertificate) {
  const std::string kept = store(2, kDebians + kOther);
  EXPECT_EQ(*java_store_with(kept, "the builder's"), kept);
}

TEST(JavaStore, WhatIsNoKeystoreIsRefused) {
  const std::string good = store(2, kOther + key("mine"));
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_EQ(java_store_with(good.substr(0, size), "x").error().code, "java_store_unknown") << size;
  EXPECT_FALSE(java_store_with(good + "more", "x"));
  EXPECT_FALSE(java_store_with(store(0xffffffff, kOther), "x"));
  EXPECT_FALSE(java_store_with(number(0xfeedfeed, 4) + number(1, 4) + good.substr(8), "x"));
  EXPECT_FALSE(java_store_with(store(1, number(3, 4) + kOther.substr(4)), "x"));
}

class JavaStoreFile : public ::testing::Test {
 protected:
  JavaStoreFile() : dir_(*TempDir::make(fs::temp_directory_path(), "java-store-")), root_(dir_.path().string()), path_(root_ + kJavaStore) {
    fs::create_directories(fs::path(path_).parent_path());
  }
  void put(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  std::string text() const { return *read_file(path_, 1 << 20); }

  TempDir dir_;
  std::string root_, path_;
};

TEST_F(JavaStoreFile, IsWrittenInPlaceOnceItHasItsRoom) {
  put(store(1, kOther));
  fs::permissions(path_, fs::perms(0640));
  ASSERT_TRUE(install_java_authority(root_, pem("first")));
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0640));
  EXPECT_EQ(text(), *java_store_with(store(1, kOther), "first"));
  struct stat before = {}, after = {};
  ASSERT_EQ(::stat(path_.c_str(), &before), 0);
  for (const char* der : {"second", "first", "first"}) {
    ASSERT_TRUE(install_java_authority(root_, pem(der)));
    EXPECT_EQ(text(), *java_store_with(store(1, kOther), der));
  }
  ASSERT_EQ(::stat(path_.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
}

TEST_F(JavaStoreFile, IsNotMadeAndNoLinkIsFollowed) {
  ASSERT_TRUE(install_java_authority(root_, pem("first")));
  EXPECT_FALSE(fs::exists(path_));
  std::ofstream(root_ + "/precious") << store(1, kOther);
  fs::create_symlink(root_ + "/precious", path_);
  EXPECT_FALSE(install_java_authority(root_, pem("first")));
  EXPECT_EQ(*read_file(root_ + "/precious", 1 << 20), store(1, kOther));
  fs::remove(path_);
  fs::create_hard_link(root_ + "/precious", path_);
  EXPECT_EQ(install_java_authority(root_, pem("first")).error().code, "java_store_unknown");
}

TEST_F(JavaStoreFile, OfAnotherFormIsLeftAlone) {
  put("0\x82 PKCS#12");
  EXPECT_EQ(install_java_authority(root_, pem("first")).error().code, "java_store_unknown");
  EXPECT_EQ(text(), "0\x82 PKCS#12");
}

}  // namespace
}  // namespace space::agent
