#include "template/signature.h"

#include <sys/stat.h>

#include "base/encoding.h"
#include "template/test_release.h"

namespace space::tmpl {
namespace {
namespace fs = std::filesystem;

struct SignatureTest : WholeRelease {
  SignatureTest() { EXPECT_TRUE(sign_release(store, release, key)); }
  // "" when the signature and every file are right.
  std::string verdict() {
    const auto found = store.resolve("base");
    if (!found) return found.error().code;
    const auto read = read_signature(store, *found);
    if (!read) return read.error().code;
    if (!*read) return "unsigned";
    const auto checked = check_statement(**read, *found);
    return checked ? "" : checked.error().code;
  }

  SigningKey key = new_key("key");
};

TEST_F(SignatureTest, OfWhatLiesThereIsRight) {
  EXPECT_EQ(verdict(), "");
  EXPECT_EQ(read_signature(store, release)->value().signer, key.public_key());
  EXPECT_TRUE(sign_release(store, release, key));  // once more
  EXPECT_EQ(verdict(), "");
}

TEST_F(SignatureTest, ABitInAnyFileIsNoticedAndTheFileNamed) {
  const auto content = release.rootfs.parent_path();
  for (const auto& [file, name] : {std::pair{release.rootfs, "rootfs.ext4"},
                                   {content / "manifest", "manifest"},
                                   {content / "lock", "lock"},
                                   {release.kernel, "vmlinux"},
                                   {release.kernel.parent_path() / "modules" / "a.ko", "modules"},
                                   {release.kernel.parent_path() / "modules" / "order", "modules"}}) {
    flip(file, 1);
    const auto checked = check_statement(read_signature(store, release)->value(), release);
    ASSERT_FALSE(checked) << file;
    EXPECT_EQ(checked.error().code, "template_altered");
    EXPECT_NE(checked.error().message.find(name), std::string::npos) << checked.error().message;
    flip(file, 1);
    EXPECT_EQ(verdict(), "");
  }
}

TEST_F(SignatureTest, NoBitOfTheSignatureFileCanBeTurned) {
  const auto size = text_of(signature()).size();
  for (std::size_t at = 0; at < size; ++at) {
    flip(signature(), at);
    EXPECT_NE(verdict(), "") << at;
    flip(signature(), at);
  }
  EXPECT_EQ(verdict(), "");
}

TEST_F(SignatureTest, NoBitOfTheRecordsCanBeTurned) {
  const auto record = release.rootfs.parent_path() / "release.json", tag = Layout(store.root()).tag("base", "latest");
  // The last field of the tag's is the time of publishing, which is not signed.
  for (const auto& [file, size] : {std::pair{record, text_of(record).size()}, std::pair{tag, text_of(tag).rfind(':')}}) {
    for (std::size_t at = 0; at < size; ++at) {
      flip(file, at);
      EXPECT_NE(verdict(), "") << file << " " << at;
      flip(file, at);
    }
  }
  EXPECT_EQ(verdict(), "");
}

TEST_F(SignatureTest, CutLongAndForeignTextsAreRefused) {
  const auto whole = text_of(signature());
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse_signature(whole.substr(0, size), "base:latest")) << size;
  for (const auto& text :
       {whole + "\n", whole + whole, "\n" + whole, whole.substr(0, whole.size() - 1) + " \n", std::string("space-template-signature 1\n")})
    EXPECT_EQ(parse_signature(text, "base:latest").error().code, "template_signature");
  std::ofstream(signature()) << std::string(kSignatureFileBytes + 1, 'a');
  EXPECT_EQ(verdict(), "template_signature");
}

TEST_F(SignatureTest, IsOfOneNameAndOneContent) {
  const auto other = published("base", "other", "image"), foreign = published("base", "foreign", "another image");
  for (const auto& to : {other, foreign}) {
    fs::copy_file(signature(), signature_file(store, to));
    EXPECT_EQ(check_statement(read_signature(store, to)->value(), to).error().code, "template_altered");
  }
}

TEST_F(SignatureTest, AnotherKeyWithTheSameStatementIsNoSigner) {
  const auto text = text_of(signature());
  const auto mine = to_string(key.public_key()), theirs = to_string(new_key("other").public_key());
  auto changed = text;
  changed.replace(changed.find(mine), mine.size(), theirs);
  EXPECT_EQ(parse_signature(changed, "base:latest").error().code, "template_signature");
}

TEST_F(SignatureTest, WhatIsAlreadyAlteredIsNotSigned) {
  flip(release.rootfs, 0);
  EXPECT_EQ(sign_release(store, release, key).error().code, "template_altered");
}

TEST_F(SignatureTest, GoesWithItsName) {
  const auto file = signature();
  ASSERT_TRUE(store.remove("base:latest"));
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(SignatureTest, KeysAreTheirOwnersAlone) {
  const auto file = dir.path() / "key";
  EXPECT_EQ(SigningKey::load(file)->public_key(), key.public_key());
  EXPECT_EQ(SigningKey::create(file).error().code, "signing_key_exists");
  ::chmod(file.c_str(), 0640);
  EXPECT_EQ(SigningKey::load(file).error().code, "signing_key");
  const auto write = [&](const std::string& text) {
    std::ofstream(dir.path() / "bad") << text;
    ::chmod((dir.path() / "bad").c_str(), 0600);
    return SigningKey::load(dir.path() / "bad").error().code;
  };
  for (const auto& text : {std::string(), std::string(5000, 'a'), text_of(file).substr(0, 60),
                           std::string("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n")})
    EXPECT_EQ(write(text), "signing_key");
}

TEST(PublicKeyTest, HasOneSpelling) {
  const auto text = "ed25519:" + std::string(64, 'a');
  EXPECT_EQ(to_string(parse_public_key(text).value()), text);
  for (const auto& wrong : {std::string(64, 'a'), "ed25519:" + std::string(63, 'a'), "ed25519:" + std::string(66, 'a'),
                            "ed25519:" + std::string(64, 'A'), "ed448:" + std::string(64, 'a')})
    EXPECT_FALSE(parse_public_key(wrong)) << wrong;
}

// RFC 8032, section 7.1, test 2.
TEST(PublicKeyTest, VerifiesAsTheStandardSays) {
  const auto key = parse_public_key("ed25519:3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c").value();
  const auto signature = hex_decode(
                             "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302"
                             "aeeb00d291612bb0c00")
                             .value();
  EXPECT_TRUE(is_signed("\x72", signature, key));
  EXPECT_FALSE(is_signed("\x73", signature, key));
  EXPECT_FALSE(is_signed("\x72", signature.substr(0, 63), key));
}

}  // namespace
}  // namespace space::tmpl
