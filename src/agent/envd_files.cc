// E2B's /files: one file down (GET, ranges), one or more up (POST: multipart/form-data or application/octet-stream, gzip or not).
// Uploads are written in place, as E2B's clients and watchers expect; parents are made, and everything belongs to the user.
#include <zlib.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "agent/content.h"
#include "agent/entry.h"
#include "agent/envd.h"
#include "agent/envd_multipart.h"
#include "agent/routes.h"
#include "agent/send_file.h"
#include "base/encoding.h"

namespace space::agent {
namespace {

using EnvdPtr = std::shared_ptr<Envd>;
using Metadata = std::map<std::string, std::string>;

constexpr std::size_t kUploadPiece = 256 << 10;
constexpr std::size_t kMostFiles = 10'000;  // in one request
constexpr std::string_view kMetadataHeader = "X-Metadata-", kAttribute = "user.e2b.";
constexpr std::size_t kLongestKey = 246, kMostFileMetadata = 4096;

std::string_view media_type(const std::string& path) {
  static constexpr std::pair<std::string_view, std::string_view> kTypes[] = {{".txt", "text/plain; charset=utf-8"},
                                                                             {".json", "application/json"},
                                                                             {".html", "text/html; charset=utf-8"},
                                                                             {".csv", "text/csv; charset=utf-8"},
                                                                             {".png", "image/png"},
                                                                             {".jpg", "image/jpeg"},
                                                                             {".svg", "image/svg+xml"},
                                                                             {".pdf", "application/pdf"},
                                                                             {".md", "text/markdown; charset=utf-8"}};
  for (const auto& [ending, type] : kTypes)
    if (path.ends_with(ending)) return type;
  return "application/octet-stream";
}

Result<EnvdUser> who_asks(Envd& envd, const http::Exchange& exchange) {
  const auto named = exchange.target().query_value("username");
  if (named && !named->empty()) return envd_user(envd.agent, *named);
  return envd_user(envd.agent, exchange);
}

Task<> get_file(EnvdPtr envd, http::Exchange& exchange) {
  CO_TRY(const EnvdUser who, who_asks(*envd, exchange));
  CO_TRY(const std::string path, envd_path(envd->agent, who.user, exchange.target().query_value("path").value_or("")));
  auto work = [&path]() -> Result<OpenedFile> {
    auto opened = open_for_reading(path);
    if (!opened && opened.error().kind == ErrorKind::not_found)
      return fail(ErrorKind::not_found, "not_found", fmt::format("path '{}' does not exist", path));
    if (!opened && opened.error().code == "is_a_directory") return invalid(fmt::format("path '{}' is a directory", path));
    return opened;
  };
  CO_TRY(const OpenedFile opened, co_await envd->agent.pool.run(std::move(work)));
  const std::string name = path.substr(path.rfind('/') + 1);
  http::Headers headers{{"Content-Type", std::string(media_type(path))},
                        {"Content-Disposition", fmt::format("inline; filename*=UTF-8''{}", percent_encode(name))},
                        {"Vary", "Accept-Encoding"}};
  co_return co_await send_file(envd->agent, exchange, opened, std::move(headers));
}

// The request's body, unpacked when it comes as gzip (RFC 1952).
class Body {
 public:
  explicit Body(http::Exchange& exchange) : exchange_(exchange) {}
  Body(const Body&) = delete;
  Body& operator=(const Body&) = delete;
  ~Body() {
    if (packed_) ::inflateEnd(&stream_);
  }

  Result<> open() {
    const std::string_view encoding = exchange_.headers().get("Content-Encoding");
    if (encoding.empty() || http::equal_no_case(encoding, "identity")) return {};
    if (!http::equal_no_case(encoding, "gzip"))
      return invalid(fmt::format("the content encoding {} is not supported", is_utf8(encoding) ? encoding.substr(0, 32) : "?"));
    constexpr int kGzipAlone = 16;
    if (::inflateInit2(&stream_, kGzipAlone + MAX_WBITS) != Z_OK)
      return fail(ErrorKind::internal, "internal", "the decompressor cannot be started");
    packed_ = true;
    return {};
  }

  Task<std::size_t> read(std::span<std::byte> into) {
    if (!packed_) co_return co_await exchange_.read(into);
    for (;;) {
      if (stream_.avail_in == 0 && !ended_) {
        CO_TRY(const std::size_t size, co_await exchange_.read(input_));
        ended_ = size == 0;
        stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
        stream_.avail_in = static_cast<uInt>(size);
      }
      CO_TRY(const std::size_t unpacked, unpack(into));
      if (unpacked > 0) co_return unpacked;
      if (ended_ && stream_.avail_in == 0) {
        if (!whole_) co_return invalid("the gzip data ends too early");
        co_return 0U;
      }
    }
  }

 private:
  Result<std::size_t> unpack(std::span<std::byte> into) {
    if (stream_.avail_in == 0 && whole_) return 0U;
    if (whole_) {  // another member follows
      whole_ = false;
      ::inflateReset(&stream_);
    }
    stream_.next_out = reinterpret_cast<Bytef*>(into.data());
    stream_.avail_out = static_cast<uInt>(into.size());
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) return invalid("the body is not valid gzip data");
    whole_ = status == Z_STREAM_END;
    return into.size() - stream_.avail_out;
  }

  http::Exchange& exchange_;
  z_stream stream_{};
  std::array<std::byte, 64 << 10> input_;
  bool packed_ = false, ended_ = false, whole_ = false;
};

Result<Metadata> read_metadata(const http::Headers& headers) {
  Metadata out;
  std::size_t total = 0;
  for (const auto& [name, value] : headers.fields()) {
    if (name.size() <= kMetadataHeader.size() ||
        !http::equal_no_case(std::string_view(name).substr(0, kMetadataHeader.size()), kMetadataHeader))
      continue;
    std::string key = name.substr(kMetadataHeader.size());
    for (char& c : key)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (key.size() > kLongestKey) return invalid(fmt::format("a metadata key has at most {} characters", kLongestKey));
    if (!std::all_of(value.begin(), value.end(), [](char c) { return c >= 0x20 && c < 0x7f; }))
      return invalid("a metadata value is printable ASCII");
    total += key.size() + value.size();
    out[std::move(key)] = value;
  }
  if (total > kMostFileMetadata) return invalid(fmt::format("the metadata of a file has at most {} bytes", kMostFileMetadata));
  return out;
}

// Replaces all that was there.
Result<> set_metadata(const Fd& file, const Metadata& metadata) {
  std::array<char, 16 << 10> names{};
  const ssize_t size = ::flistxattr(file.get(), names.data(), names.size());
  for (ssize_t at = 0; at < size;) {
    const std::string_view name(names.data() + at);
    at += static_cast<ssize_t>(name.size()) + 1;
    if (name.starts_with(kAttribute)) ::fremovexattr(file.get(), name.data());
  }
  for (const auto& [key, value] : metadata)
    if (::fsetxattr(file.get(), fmt::format("{}{}", kAttribute, key).c_str(), value.data(), value.size(), 0) != 0)
      return fail_errno(errno, "store the metadata");
  return {};
}

struct Target {
  std::string path;
  Fd file;
};

Result<Fd> open_target(const std::string& path, const User& user, const Metadata& metadata) {
  struct stat st = {};
  if (path.ends_with('/') || (::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode)))
    return invalid(fmt::format("path is a directory: {}", path));
  TRY_VOID(envd_make_folders(path, false, user));
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0644));
  if (!file) return fail_errno(errno, fmt::format("write {}", path));
  if (::geteuid() == 0 && ::fchown(file.get(), user.uid, user.gid) != 0 && errno != EPERM)
    return fail_errno(errno, fmt::format("chown {}", path));
  TRY_VOID(set_metadata(file, metadata));
  return file;
}

Result<> write_all(const Fd& file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(file.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == ENOSPC) return fail(ErrorKind::insufficient_storage, "no_space", "not enough disk space available");
    if (n < 0) return fail_errno(errno, "write the file");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

class Uploads {
 public:
  Uploads(Envd& envd, EnvdUser who, Metadata metadata) : envd_(envd), who_(std::move(who)), metadata_(std::move(metadata)) {}

  Task<> begin(std::string given) {
    if (given.empty()) co_return invalid("a file needs a path");
    CO_TRY(std::string path, envd_path(envd_.agent, who_.user, given));
    if (!seen_.insert(path).second) co_return invalid(fmt::format("the path {} is there twice", path));
    if (seen_.size() > kMostFiles) co_return invalid(fmt::format("one request can write {} files", kMostFiles));
    auto work = [&] { return open_target(path, who_.user, metadata_); };
    CO_TRY(file_, co_await envd_.agent.pool.run(std::move(work)));
    json::object info;
    put_bytes(info, "path", path);
    put_bytes(info, "name", path.substr(path.rfind('/') + 1));
    info["type"] = "file";
    if (!metadata_.empty()) info["metadata"] = json::value_from(metadata_);
    written_.push_back(std::move(info));
    co_return Result<>();
  }
  Task<> write(std::string_view bytes) {
    auto work = [&] { return write_all(file_, bytes); };
    co_return co_await envd_.agent.pool.run(std::move(work));
  }
  void end() { file_.reset(); }
  json::array take() { return std::move(written_); }

 private:
  Envd& envd_;
  EnvdUser who_;
  Metadata metadata_;
  Fd file_;
  std::set<std::string> seen_;
  json::array written_;
};

Task<> receive_one(Body& body, Uploads& uploads, std::string path) {
  CO_TRY_VOID(co_await uploads.begin(std::move(path)));
  std::vector<std::byte> piece(kUploadPiece);
  for (;;) {
    CO_TRY(const std::size_t size, co_await body.read(piece));
    if (size == 0) break;
    CO_TRY_VOID(co_await uploads.write(as_text(std::span(piece).first(size))));
  }
  uploads.end();
  co_return Result<>();
}

// `path`: for the one part of a request that names it; else each part's file name is its path.
Task<> receive_parts(Body& body, Uploads& uploads, std::string boundary, std::optional<std::string> path) {
  MultipartReader reader(boundary);
  std::vector<std::byte> piece(kUploadPiece);
  bool taken = false;  // this part is a file
  while (!reader.done()) {
    CO_TRY(const std::size_t size, co_await body.read(piece));
    if (size == 0) co_return invalid("the upload ends before its last boundary");
    CO_TRY(const std::vector<PartEvent> events, reader.feed(as_text(std::span(piece).first(size))));
    for (const PartEvent& event : events) {
      if (event.what == PartEvent::What::begin) {
        taken = event.name == "file";
        if (taken) CO_TRY_VOID(co_await uploads.begin(path.value_or(event.filename)));
      } else if (taken && event.what == PartEvent::What::data) {
        CO_TRY_VOID(co_await uploads.write(event.data));
      } else if (taken) {
        uploads.end();
      }
    }
  }
  while (true) {  // an epilogue is read and dropped, so that the connection goes on
    CO_TRY(const std::size_t size, co_await body.read(piece));
    if (size == 0) co_return Result<>();
  }
}

Task<> post_files(EnvdPtr envd, http::Exchange& exchange) {
  CO_TRY(EnvdUser who, who_asks(*envd, exchange));
  CO_TRY(Metadata metadata, read_metadata(exchange.headers()));
  auto path = exchange.target().query_value("path");
  if (path && path->empty()) path.reset();
  Body body(exchange);
  CO_TRY_VOID(body.open());
  Uploads uploads(*envd, std::move(who), std::move(metadata));
  const std::string_view type = exchange.headers().get("Content-Type");
  if (const auto boundary = multipart_boundary(type)) {
    CO_TRY_VOID(co_await receive_parts(body, uploads, *boundary, path));
  } else if (http::equal_no_case(type.substr(0, type.find(';')), "application/octet-stream")) {
    if (!path) co_return invalid("path is needed for application/octet-stream");
    CO_TRY_VOID(co_await receive_one(body, uploads, *path));
  } else {
    co_return invalid("the content type must be multipart/form-data or application/octet-stream");
  }
  http::Response response = http::json_response(200, json::serialize(uploads.take()));
  co_return co_await exchange.reply(std::move(response));
}

}  // namespace

void add_envd_file_routes(http::Router& router, const EnvdPtr& envd) {
  router.add("GET", "/files", [envd](http::Exchange& x) { return envd_plain(x, get_file(envd, x)); });
  router.add("POST", "/files", [envd](http::Exchange& x) { return envd_plain(x, post_files(envd, x)); });
}

}  // namespace space::agent
