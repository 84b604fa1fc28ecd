// The signature of a release: beside its tag lies tags/<name>/<tag>.signature, a text of lines,
//
//   space-template-signature 1
//   template base:latest
//   digest sha256:…              of the files and the runtime configuration (publish.h)
//   release.json sha256:…        and so on, a line for each file that a sandbox of it gets or that says what is in it
//   kernel 6.1.192-3
//   signer ed25519:…
//   signature <128 hex>          over every line above it
//
// The name is signed too: content that was signed as one template is not signed as another. The initramfs is not in it: it is made
// from the signed modules and this installation's agent, on this machine. Everything here blocks; hashing an image takes seconds.
#pragma once

#include <optional>
#include <string>

#include "template/release.h"
#include "template/signing_key.h"

namespace space::tmpl {

inline constexpr std::size_t kSignatureFileBytes = 4096;

struct Signature {
  std::string statement;  // the lines before the signature's
  PublicKey signer;
};

std::filesystem::path signature_file(const TemplateStore& store, const Release& release);

// A text as above whose signature is that of the signer it names. unsupported/template_signature.
Result<Signature> parse_signature(std::string_view text, std::string_view label);
// nullopt: the release is not signed.
Result<std::optional<Signature>> read_signature(const TemplateStore& store, const Release& release);

// Every file is what was signed: reads them all. unsupported/template_altered names the one that is not.
Result<> check_statement(const Signature& signature, const Release& release);

// Signs what lies there, after a look that the files still have the digests of the build. A signature that was there is replaced.
// invalid_argument/template_reference for what was published out of a sandbox. Takes the store's lock.
Result<> sign_release(const TemplateStore& store, const Release& release, const SigningKey& key);

}  // namespace space::tmpl
