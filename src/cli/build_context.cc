#include "cli/build_context.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "base/digest.h"
#include "base/encoding.h"
#include "base/file.h"
#include "template/archive_reader.h"

namespace space::cli {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kDate = 946'684'800;  // 2000-01-01: old enough for nobody, new enough for zip

Result<Fd> nameless_file() {
  std::error_code error;
  const fs::path folder = fs::temp_directory_path(error);
  return open_file(error ? fs::path("/tmp") : folder, O_TMPFILE | O_RDWR);
}

Result<PackedFiles> finished(Fd file) {
  PackedFiles out;
  TRY(const Sha256 digest, sha256_of_file(file));
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return fail_errno(errno, "look at an archive");
  out.bytes = static_cast<std::uint64_t>(st.st_size);
  out.digest = hex_encode(digest);
  out.file = std::move(file);
  return out;
}

// A tar in the making.
class Packer {
 public:
  static Result<Packer> make() {
    Packer out;
    TRY(out.file_, nameless_file());
    out.archive_.reset(archive_write_new());
    archive_write_set_format_pax_restricted(out.archive_.get());
    archive_write_set_bytes_per_block(out.archive_.get(), 0);
    if (archive_write_open_fd(out.archive_.get(), out.file_.get()) != ARCHIVE_OK) return out.failure("begin");
    return out;
  }

  Result<> add(const fs::path& path, const std::string& name) {
    struct stat st {};
    if (::lstat(path.c_str(), &st) != 0) return fail_errno(errno, path.string());
    const std::unique_ptr<archive_entry, void (*)(archive_entry*)> entry(archive_entry_new(), archive_entry_free);
    archive_entry_set_pathname(entry.get(), name.c_str());
    archive_entry_set_filetype(entry.get(), st.st_mode & S_IFMT);
    archive_entry_set_perm(entry.get(), st.st_mode & 07777);
    archive_entry_set_uid(entry.get(), 0);
    archive_entry_set_gid(entry.get(), 0);
    archive_entry_set_mtime(entry.get(), kDate, 0);
    if (S_ISLNK(st.st_mode)) {
      std::error_code error;
      archive_entry_set_symlink(entry.get(), fs::read_symlink(path, error).c_str());
      if (error) return fail_errno(error.value(), "read the link " + path.string());
    } else if (S_ISREG(st.st_mode)) {
      archive_entry_set_size(entry.get(), st.st_size);
    } else if (!S_ISDIR(st.st_mode)) {
      return {};  // sockets and devices of this machine mean nothing elsewhere
    }
    if (archive_write_header(archive_.get(), entry.get()) != ARCHIVE_OK) return failure(path.string());
    return S_ISREG(st.st_mode) ? content(path, static_cast<std::uint64_t>(st.st_size)) : Result<>{};
  }

  Result<PackedFiles> finish() {
    if (archive_write_close(archive_.get()) != ARCHIVE_OK) return failure("end");
    return finished(std::move(file_));
  }

 private:
  struct Free {
    void operator()(archive* a) const { archive_write_free(a); }
  };
  tl::unexpected<Error> failure(std::string_view doing) const {
    const char* why = archive_error_string(archive_.get());
    return fail(ErrorKind::internal, "archive_not_written", fmt::format("pack {}: {}", doing, why ? why : "unknown"));
  }
  Result<> content(const fs::path& path, std::uint64_t length) {
    TRY(const Fd file, open_file(path, O_RDONLY | O_NOFOLLOW));
    std::string piece(256 << 10, '\0');
    for (std::uint64_t at = 0; at < length;) {
      const std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), length - at));
      TRY_VOID(pread_all(file, std::as_writable_bytes(std::span(piece).first(size)), at));
      if (archive_write_data(archive_.get(), piece.data(), size) != static_cast<la_ssize_t>(size)) return failure(path.string());
      at += size;
    }
    return {};
  }
  Fd file_;
  std::unique_ptr<archive, Free> archive_;
};

std::string tidy(std::string path) {
  while (path.starts_with("./")) path.erase(0, 2);
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  while (path.starts_with('/')) path.erase(0, 1);  // Docker: from the context's root
  return path.empty() ? "." : path;
}

}  // namespace

Result<BuildContext> BuildContext::open(const fs::path& root) {
  BuildContext out;
  std::error_code error;
  out.root_ = fs::canonical(root, error);
  if (error || !fs::is_directory(out.root_))
    return fail(ErrorKind::not_found, "no_such_folder", fmt::format("{} is no folder", root.string()),
                "name the folder with the files to copy");
  auto text = read_file(out.root_ / ".dockerignore", 1 << 20);
  if (!text) return text.error().kind == ErrorKind::not_found ? Result<BuildContext>(std::move(out)) : fail(std::move(text).error());
  std::size_t number = 0;
  for (std::size_t at = 0; at < text->size();) {
    const std::size_t end = std::min(text->find('\n', at), text->size());
    std::string line = text->substr(at, end - at);
    at = end + 1;
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    Rule rule;
    rule.keep = line.front() == '!';
    rule.pattern = tidy(rule.keep ? line.substr(1) : line);
    // "**/x" is x anywhere; two stars elsewhere are not understood.
    if (rule.pattern.find("**", rule.pattern.starts_with("**/") ? 3 : 0) != std::string::npos)
      return fail(ErrorKind::invalid_argument, "dockerignore",
                  fmt::format(".dockerignore, line {}: '**' is understood at the beginning alone", number), "name the folders");
    out.rules_.push_back(std::move(rule));
  }
  return out;
}

bool BuildContext::ignored(const std::string& path) const {
  const auto matches = [](const std::string& pattern, const std::string& whole) {
    // A pattern stands for what lies below it as well.
    for (std::size_t end = whole.size(); end != std::string::npos && end > 0; end = whole.rfind('/', end - 1)) {
      const std::string part = whole.substr(0, end);
      if (pattern.starts_with("**/")) {
        const std::string rest = pattern.substr(3);
        for (std::size_t begin = 0; begin != std::string::npos;
             begin = part.find('/', begin) == std::string::npos ? std::string::npos : part.find('/', begin) + 1)
          if (::fnmatch(rest.c_str(), part.c_str() + begin, FNM_PATHNAME) == 0) return true;
      } else if (::fnmatch(pattern.c_str(), part.c_str(), FNM_PATHNAME) == 0) {
        return true;
      }
      if (end < 1) break;
    }
    return false;
  };
  bool out = false;
  for (const Rule& rule : rules_)
    if (matches(rule.pattern, path)) out = !rule.keep;
  return out;
}

Result<std::vector<std::string>> BuildContext::match(const std::string& source) const {
  const std::string wanted = tidy(source);
  for (const fs::path& part : fs::path(wanted))
    if (part == "..")
      return fail(ErrorKind::invalid_argument, "source_outside", fmt::format("'{}' lies outside the build's folder", source),
                  "copy it there, or build from a folder above");
  std::vector<std::string> out;
  glob_t found{};
  const int status = ::glob((root_ / wanted).c_str(), GLOB_NOSORT, nullptr, &found);
  for (std::size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    std::string path = fs::path(found.gl_pathv[i]).lexically_relative(root_).string();
    if (path == "." || !ignored(path)) out.push_back(std::move(path));
  }
  ::globfree(&found);
  std::error_code error;  // glob follows links: one that leads nowhere is a source as well
  if (out.empty() && fs::is_symlink(root_ / wanted, error) && !ignored(wanted)) out.push_back(wanted);
  if (out.empty())
    return fail(ErrorKind::not_found, "no_such_source", fmt::format("'{}' is not in {}", source, root_.string()),
                "check its name, and .dockerignore");
  std::sort(out.begin(), out.end());
  return out;
}

Result<PackedFiles> BuildContext::pack(const std::string& entry) const {
  const tmpl::Utf8Names names;
  // A link on the way may lead out of the folder.
  std::error_code error;
  const fs::path above = fs::canonical((root_ / entry).parent_path(), error);
  if (error || (above != root_ && !above.string().starts_with(root_.string() + "/")))
    return fail(ErrorKind::invalid_argument, "source_outside", fmt::format("'{}' lies outside the build's folder", entry), "copy it there");
  TRY(Packer packer, Packer::make());
  std::function<Result<>(const std::string&)> add = [&](const std::string& path) -> Result<> {
    if (path != ".") TRY_VOID(packer.add(root_ / path, path));
    if (!fs::is_directory(fs::symlink_status(root_ / path, error))) return {};
    TRY(const auto inside, list_directory(root_ / path));
    for (const std::string& name : inside) {
      const std::string next = path == "." ? name : path + "/" + name;
      // A folder that is ignored may hold something that is not.
      const bool folder = fs::is_directory(fs::symlink_status(root_ / next, error));
      const bool exceptions = std::any_of(rules_.begin(), rules_.end(), [](const Rule& rule) { return rule.keep; });
      if (!ignored(next) || (folder && exceptions)) TRY_VOID(add(next));
    }
    return {};
  };
  TRY_VOID(add(entry));
  return packer.finish();
}

Result<PackedFiles> pack_image(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    if (!fs::exists(path / "index.json", error))
      return fail(ErrorKind::invalid_argument, "not_an_image", fmt::format("{} is no OCI layout: it has no index.json", path.string()),
                  "name a layout or an archive");
    TRY(const BuildContext context, BuildContext::open(path));
    return context.pack(".");
  }
  TRY(Fd file, open_file(path, O_RDONLY));
  return finished(std::move(file));
}

}  // namespace space::cli
