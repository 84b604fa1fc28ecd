#include "template/trusted_templates.h"

#include <sys/stat.h>

#include "template/published.h"
#include "template/test_release.h"

namespace space::tmpl {
namespace {
namespace fs = std::filesystem;

struct TrustTest : WholeRelease {
  TrustPolicy policy(const std::string& text) {
    auto read = try_policy(text);
    EXPECT_TRUE(read) << read.error().message;
    return read.value();
  }
  Result<TrustPolicy> try_policy(const std::string& text) {
    const auto file = dir.path() / "trust.toml";
    std::ofstream(file) << text;
    ::chmod(file.c_str(), 0644);
    return read_trust_policy(file);
  }
  std::string signer(const SigningKey& of, const std::string& more = "") {
    const auto name = to_string(of.public_key());
    return "[[signer]]\nname = \"" + name.substr(8, 6) + "\"\nkey = \"" + name + "\"\n" + more;
  }
  std::string verdict(TrustedTemplates& trusted, const std::string& reference = "base") {
    const auto found = trusted.resolve(reference);
    if (found) return "";
    EXPECT_NE(found.error().next, "");
    EXPECT_NE(found.error().message.find("base"), std::string::npos) << found.error().message;
    return found.error().code;
  }
  std::string verdict(const TrustPolicy& with, const std::string& reference = "base") {
    TrustedTemplates trusted(store, with);
    return verdict(trusted, reference);
  }

  SigningKey key = new_key("key"), other = new_key("other");
};

TEST_F(TrustTest, WithoutAPolicyWhatIsUnsignedLoadsAndWhatIsAlteredDoesNot) {
  EXPECT_EQ(verdict(TrustPolicy{}), "");
  ASSERT_TRUE(sign_release(store, release, key));
  EXPECT_EQ(verdict(TrustPolicy{}), "");
  flip(release.rootfs, 0);
  EXPECT_EQ(verdict(TrustPolicy{}), "template_altered");
}

TEST_F(TrustTest, OnlyANamedSignerIsTrusted) {
  const auto strict = policy("format = 1\n" + signer(key));
  EXPECT_EQ(verdict(strict), "template_unsigned");
  ASSERT_TRUE(sign_release(store, release, other));
  EXPECT_EQ(verdict(strict), "template_signer_untrusted");
  ASSERT_TRUE(sign_release(store, release, key));
  EXPECT_EQ(verdict(strict), "");
  EXPECT_EQ(verdict(policy("format = 1\nunsigned = \"allow\"\n" + signer(other))), "template_signer_untrusted");
}

TEST_F(TrustTest, ASignerMayBeBoundToNames) {
  ASSERT_TRUE(sign_release(store, release, key));
  EXPECT_EQ(verdict(policy("format = 1\n" + signer(key, "templates = [\"team-*\", \"other\"]\n"))), "template_signer_untrusted");
  EXPECT_EQ(verdict(policy("format = 1\n" + signer(key, "templates = [\"bas*\"]\n"))), "");
  EXPECT_EQ(verdict(policy("format = 1\n" + signer(key, "templates = [\"base\"]\n"))), "");
}

TEST_F(TrustTest, OnlyANamedStoreIsTrusted) {
  ASSERT_TRUE(sign_release(store, release, key));
  const auto with = [&](const std::string& stores) { return verdict(policy("format = 1\nstores = [" + stores + "]\n" + signer(key))); };
  EXPECT_EQ(with("\"/somewhere\""), "template_store_untrusted");
  EXPECT_EQ(with("\"" + store.root().string() + "x\""), "template_store_untrusted");
  EXPECT_EQ(with("\"/somewhere\", \"" + store.root().string() + "\""), "");
  EXPECT_EQ(with("\"" + dir.path().string() + "\""), "");
}

TEST_F(TrustTest, AChangeAfterTheFirstLookIsNoticed) {
  ASSERT_TRUE(sign_release(store, release, key));
  TrustedTemplates trusted(store, policy("format = 1\n" + signer(key)));
  EXPECT_EQ(verdict(trusted), "");
  EXPECT_EQ(verdict(trusted), "");
  flip(release.rootfs, 0);
  EXPECT_EQ(verdict(trusted), "template_altered");
  flip(release.rootfs, 0);
  EXPECT_EQ(verdict(trusted), "");
  fs::remove(signature());
  EXPECT_EQ(verdict(trusted), "template_unsigned");
}

TEST_F(TrustTest, ADigestIsTrustedByAnyOfItsNames) {
  const auto second = published("base", "signed", "image");
  ASSERT_EQ(second.digest, release.digest);
  ASSERT_TRUE(sign_release(store, second, key));
  const auto strict = policy("format = 1\n" + signer(key));
  EXPECT_EQ(verdict(strict), "template_unsigned");
  EXPECT_EQ(verdict(strict, "base:signed"), "");
  EXPECT_EQ(verdict(strict, release.digest), "");
}

TEST_F(TrustTest, WhatWasMadeOutOfASandboxIsAllowedOrNotAndStandsOnATrustedOne) {
  const PublishedStore published(dir.path() / "node");
  store = TemplateStore(store.root(), published.root());
  PublishedStore::Order order;
  order.name = "base-mine";
  order.tag = "1";
  order.parent = release;
  order.staged = published.stage_folder().value();
  ASSERT_TRUE(write_file_durable(order.staged / "disk.qcow2", "disk"));
  const auto mine = published.place(store, order).value();
  ASSERT_TRUE(published.name(mine, "operation"));
  const auto closed = policy("format = 1\n" + signer(key)), open = policy("format = 1\npublished = \"allow\"\n" + signer(key));
  EXPECT_EQ(verdict(TrustPolicy{}, "base-mine:1"), "");
  EXPECT_EQ(verdict(closed, "base-mine:1"), "template_store_untrusted");
  EXPECT_EQ(TrustedTemplates(store, closed).may_publish().error().code, "template_store_untrusted");
  EXPECT_TRUE(TrustedTemplates(store, open).may_publish());
  EXPECT_EQ(verdict(open, "base-mine:1"), "template_unsigned");
  ASSERT_TRUE(sign_release(store, release, key));
  EXPECT_EQ(verdict(open, "base-mine:1"), "");
  EXPECT_EQ(sign_release(store, mine, key).error().code, "template_reference");
}

TEST_F(TrustTest, APolicyIsReadStrictly) {
  const auto good = "format = 1\n" + signer(key);
  EXPECT_TRUE(try_policy(good));
  for (const auto& text : {std::string(),
                           std::string("format = 1\n"),
                           std::string("format = 2\nunsigned = \"allow\"\n"),
                           std::string("format = \"1\"\nunsigned = \"allow\"\n"),
                           "unknown = 1\n" + good,
                           "unsigned = true\n" + good,
                           "unsigned = \"yes\"\n" + good,
                           "stores = []\n" + good,
                           "stores = [\"relative\"]\n" + good,
                           "stores = [1]\n" + good,
                           "stores = \"/a\"\n" + good,
                           "published = 1\n" + good,
                           good + signer(key),
                           good + "templates = []\n",
                           good + "templates = [\"a:b\"]\n",
                           good + "templates = [\"A\"]\n",
                           good + "more = 1\n",
                           good + "templates = [\"*a\"]\n",
                           std::string("format = 1\nsigner = 1\n"),
                           std::string("format = 1\nsigner = []\n"),
                           std::string("format = 1\n[[signer]]\nname = \"a\"\n"),
                           std::string("format = 1\n[[signer]]\nname = \"a\"\nkey = \"ed25519:00\"\n"),
                           "=" + good,
                           good + std::string(70'000, '#')}) {
    const auto read = try_policy(text);
    ASSERT_FALSE(read) << text.substr(0, 200);
    EXPECT_TRUE(read.error().code == "trust_policy" || text.size() > 65'536) << read.error().code;
  }
  ::chmod((dir.path() / "trust.toml").c_str(), 0666);
  EXPECT_EQ(read_trust_policy(dir.path() / "trust.toml").error().code, "trust_policy");
}

}  // namespace
}  // namespace space::tmpl
