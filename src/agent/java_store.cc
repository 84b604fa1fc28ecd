#include "agent/java_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/uuid/detail/sha1.hpp>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/encoding.h"
#include "base/file.h"

namespace space::agent {
namespace {

constexpr std::size_t kLargestStore = 8 << 20;
constexpr std::uint32_t kMagic = 0xfeedfeed, kVersion = 2, kKey = 1, kCertificate = 2;
constexpr std::size_t kDigestSize = 20;
constexpr std::string_view kOurs = "space-egress", kDebians = "debian:space-egress.pem", kType = "X.509";
// What Java and Debian protect the store with. It is no secret: the digest finds damage, not forgery.
constexpr std::string_view kPassword("\0c\0h\0a\0n\0g\0e\0i\0t", 16), kSalt = "Mighty Aphrodite";

// Big-endian numbers and byte strings out of a text; the first that is not there makes it bad for good.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::string_view take(std::size_t size) {
    if (size > text_.size() - at_) {
      bad_ = true;
      return {};
    }
    at_ += size;
    return text_.substr(at_ - size, size);
  }
  std::uint32_t number(std::size_t bytes) {
    std::uint32_t value = 0;
    for (const char c : take(bytes)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::string_view name() { return take(number(2)); }
  std::string_view block() { return take(number(4)); }
  bool bad() const { return bad_; }
  std::size_t at() const { return at_; }

 private:
  std::string_view text_;
  std::size_t at_ = 0;
  bool bad_ = false;
};

void put(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = bytes; i-- > 0;) out.push_back(static_cast<char>(value >> (8 * i)));
}

struct JavaEntry {
  std::string_view whole, alias, certificate;
};

std::optional<JavaEntry> read_entry(Reader& in, std::string_view text) {
  const std::size_t begin = in.at();
  JavaEntry entry;
  const std::uint32_t kind = in.number(4);
  entry.alias = in.name();
  in.take(8);  // when it was made
  std::uint32_t certificates = 1;
  if (kind == kKey) {
    in.block();
    certificates = in.number(4);
  }
  for (std::uint32_t i = 0; i < certificates && !in.bad(); ++i) {
    in.name();
    const std::string_view der = in.block();
    if (kind == kCertificate) entry.certificate = der;
  }
  if (in.bad() || (kind != kKey && kind != kCertificate)) return std::nullopt;
  entry.whole = text.substr(begin, in.at() - begin);
  return entry;
}

std::optional<std::vector<JavaEntry>> read_entries(std::string_view text) {
  Reader in(text);
  if (in.number(4) != kMagic || in.number(4) != kVersion) return std::nullopt;
  const std::uint32_t count = in.number(4);
  std::vector<JavaEntry> entries;  // grows with what is there, not with what is said
  for (std::uint32_t i = 0; i < count; ++i) {
    auto entry = read_entry(in, text);
    if (!entry) return std::nullopt;
    entries.push_back(*entry);
  }
  if (text.size() - in.at() != kDigestSize) return std::nullopt;
  return entries;
}

// Filled up in its alias, which is the only part of free length.
std::string our_entry(std::string_view der) {
  const std::size_t rest = 4 + 2 + 8 + 2 + kType.size() + 4 + der.size();
  std::string alias(kOurs);
  alias.resize((rest + alias.size() + kJavaEntry - 1) / kJavaEntry * kJavaEntry - rest, '-');
  std::string out;
  put(out, kCertificate, 4);
  put(out, alias.size(), 2);
  out += alias;
  put(out, 0, 8);
  put(out, kType.size(), 2);
  out += kType;
  put(out, der.size(), 4);
  out += der;
  return out;
}

// Not OpenSSL's: the agent is a static program, and holds nothing of that.
std::string digest_of(std::string_view store) {
  boost::uuids::detail::sha1 hash;
  for (const std::string_view part : {kPassword, kSalt, store}) hash.process_bytes(part.data(), part.size());
  boost::uuids::detail::sha1::digest_type digest;
  hash.get_digest(digest);
  std::string out;
  for (const std::uint32_t word : digest) put(out, word, 4);
  return out;
}

std::optional<std::string> der_of(std::string_view pem) {
  constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----\n", kEnd = "-----END CERTIFICATE-----\n";
  if (!pem.starts_with(kBegin) || !pem.ends_with(kEnd)) return std::nullopt;
  std::string body(pem.substr(kBegin.size(), pem.size() - kBegin.size() - kEnd.size()));
  std::erase(body, '\n');
  return base64_decode(body);
}

// Of the same length: in one piece from the first byte that differs. The authority is the last entry, so that is little.
Result<> write_difference(const Fd& fd, std::string_view before, std::string_view after) {
  const auto first = static_cast<std::size_t>(std::mismatch(before.begin(), before.end(), after.begin()).first - before.begin());
  if (first == before.size()) return {};
  return pwrite_all(fd, as_bytes(after.substr(first)), first);
}

Result<> replace(const std::string& path, std::string_view content, unsigned mode) {
  const std::string beside = path + ".space-new";
  ::unlink(beside.c_str());
  const Fd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!fd) return fail_errno(errno, beside);
  auto written = pwrite_all(fd, as_bytes(content), 0);
  if (written && (::fchmod(fd.get(), mode) != 0 || ::rename(beside.c_str(), path.c_str()) != 0)) written = fail_errno(errno, path);
  if (!written) ::unlink(beside.c_str());
  return written;
}

}  // namespace

Result<std::string> java_store_with(std::string_view store, std::string_view der) {
  const auto entries = read_entries(store);
  if (!entries)
    return fail(ErrorKind::unsupported, "java_store_unknown", "Java's trust store is no JKS keystore that can be read",
                "run update-ca-certificates -f");
  if (std::any_of(entries->begin(), entries->end(), [&](const JavaEntry& entry) { return entry.certificate == der; }))
    return std::string(store);
  std::string kept;
  std::uint32_t count = 1;
  for (const JavaEntry& entry : *entries) {
    if (entry.alias.starts_with(kOurs) || entry.alias == kDebians) continue;
    kept += entry.whole;
    ++count;
  }
  std::string out;
  put(out, kMagic, 4);
  put(out, kVersion, 4);
  put(out, count, 4);
  out += kept;
  out += our_entry(der);
  out += digest_of(out);
  return out;
}

Result<> install_java_authority(const std::string& root, std::string_view pem) {
  const std::string path = root + kJavaStore;
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd && (errno == ENOENT || errno == ENOTDIR)) return {};
  struct stat st = {};
  if (!fd || ::fstat(fd.get(), &st) != 0) return fail_errno(errno, path);
  if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
    return fail(ErrorKind::unsupported, "java_store_unknown", path + " is no plain file of one name",
                "remove it and run update-ca-certificates -f");
  const auto der = der_of(pem);
  if (!der) return fail(ErrorKind::invalid_argument, "invalid_field", "ca: is no certificate");
  TRY(const std::string before, read_fd(fd, kLargestStore));
  TRY(const std::string after, java_store_with(before, *der));
  if (after.size() == before.size()) return write_difference(fd, before, after);
  return replace(path, after, st.st_mode & 0777);
}

}  // namespace space::agent
