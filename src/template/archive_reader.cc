#include "template/archive_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace space::tmpl {

Utf8Names::Utf8Names() : ours_(newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr)), before_(uselocale(ours_)) {}

Utf8Names::~Utf8Names() {
  uselocale(before_);
  if (ours_) freelocale(ours_);
}

struct ArchiveReader::Source {
  archive* outer;
  std::vector<char> buffer = std::vector<char>(256 << 10);
};

ArchiveReader::ArchiveReader(std::unique_ptr<archive, Free> archive, std::string name, std::unique_ptr<Source> source)
    : name_(std::move(name)), source_(std::move(source)), archive_(std::move(archive)) {}
ArchiveReader::ArchiveReader(ArchiveReader&&) noexcept = default;
ArchiveReader& ArchiveReader::operator=(ArchiveReader&&) noexcept = default;
ArchiveReader::~ArchiveReader() = default;

tl::unexpected<Error> ArchiveReader::failure(std::string_view doing) const {
  const char* text = archive_error_string(archive_.get());
  return fail(ErrorKind::corrupt, "archive", fmt::format("cannot {} {}: {}", doing, name_, text ? text : "unknown format"),
              "delete the file and build again; it is downloaded anew");
}

Result<ArchiveReader> ArchiveReader::open(const std::filesystem::path& path) {
  ArchiveReader reader(std::unique_ptr<archive, Free>(archive_read_new()), path.string(), nullptr);
  archive_read_support_filter_all(reader.archive_.get());
  archive_read_support_format_tar(reader.archive_.get());
  archive_read_support_format_ar(reader.archive_.get());
  if (archive_read_open_filename(reader.archive_.get(), path.c_str(), 1 << 20) != ARCHIVE_OK) return reader.failure("open");
  return reader;
}

Result<ArchiveReader> ArchiveReader::open_bytes(std::string_view bytes, bool raw) {
  ArchiveReader reader(std::unique_ptr<archive, Free>(archive_read_new()), "a compressed stream", nullptr);
  archive_read_support_filter_all(reader.archive_.get());
  if (raw)
    archive_read_support_format_raw(reader.archive_.get());
  else
    archive_read_support_format_cpio(reader.archive_.get());
  if (archive_read_open_memory(reader.archive_.get(), bytes.data(), bytes.size()) != ARCHIVE_OK) return reader.failure("open");
  return reader;
}

Result<ArchiveReader> ArchiveReader::open_inner() {
  auto source = std::make_unique<Source>();
  source->outer = archive_.get();
  auto* const from = source.get();
  ArchiveReader reader(std::unique_ptr<archive, Free>(archive_read_new()), name_, std::move(source));
  archive_read_support_filter_all(reader.archive_.get());
  archive_read_support_format_tar(reader.archive_.get());
  auto read = [](archive*, void* data, const void** out) -> la_ssize_t {
    auto* const inner = static_cast<Source*>(data);
    *out = inner->buffer.data();
    return archive_read_data(inner->outer, inner->buffer.data(), inner->buffer.size());
  };
  if (archive_read_open(reader.archive_.get(), from, nullptr, read, nullptr) != ARCHIVE_OK) return reader.failure("open");
  return reader;
}

Result<archive_entry*> ArchiveReader::next() {
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(archive_.get(), &entry);
  if (status == ARCHIVE_EOF) return nullptr;
  if (status != ARCHIVE_OK) return failure("read");
  return entry;
}

Result<> ArchiveReader::each_piece(const std::function<Result<>(std::string_view)>& take) {
  la_int64_t position = 0;
  for (;;) {
    const void* data = nullptr;
    std::size_t length = 0;
    la_int64_t offset = 0;
    const int status = archive_read_data_block(archive_.get(), &data, &length, &offset);
    if (status != ARCHIVE_OK && status != ARCHIVE_EOF) return failure("read");
    static const std::string zeros(64 << 10, '\0');
    while (position < offset) {
      const auto hole = std::min<la_int64_t>(offset - position, static_cast<la_int64_t>(zeros.size()));
      TRY_VOID(take(std::string_view(zeros).substr(0, static_cast<std::size_t>(hole))));
      position += hole;
    }
    if (status == ARCHIVE_EOF) return {};
    TRY_VOID(take({static_cast<const char*>(data), length}));
    position += static_cast<la_int64_t>(length);
  }
}

Result<std::string> ArchiveReader::content(std::size_t limit) {
  std::string out;
  TRY_VOID(each_piece([&](std::string_view piece) -> Result<> {
    if (piece.size() > limit - out.size())
      return fail(ErrorKind::too_large, "archive", fmt::format("an entry of {} is larger than {} bytes", name_, limit));
    out += piece;
    return {};
  }));
  return out;
}

Result<std::string> ArchiveReader::at_most(std::size_t bytes) {
  std::string out(bytes, '\0');
  std::size_t length = 0;
  while (length < bytes) {
    const auto n = archive_read_data(archive_.get(), out.data() + length, bytes - length);
    if (n < 0) return failure("read");
    if (n == 0) break;
    length += static_cast<std::size_t>(n);
  }
  out.resize(length);
  return out;
}

}  // namespace space::tmpl
