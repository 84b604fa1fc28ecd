#include "snapshot/overlay.h"

#include <unistd.h>

#include "base/encoding.h"
#include "base/file.h"

namespace space::snapshot {
namespace {

constexpr std::uint32_t kClusterBits = 17;
constexpr std::uint64_t kCluster = 1 << kClusterBits;
constexpr std::uint64_t kL2Covers = kCluster / 16 * kCluster;  // an extended L2 entry has 16 bytes: 1 GiB a table
constexpr std::uint64_t kMostBytes = std::uint64_t{16} << 40;  // then the L1 table is one cluster
// The clusters of an empty image: header, table of reference counts, its one block, L1 table.
enum : std::uint64_t { kCountTable = 1, kCountBlock, kL1Table, kClusters };

template <class Number>
void big_endian(std::string& out, Number number) {
  for (std::size_t i = sizeof number; i-- > 0;) out.push_back(static_cast<char>(number >> (8 * i)));
}

}  // namespace

Result<> write_empty_overlay(const Fd& file, std::uint64_t bytes) {
  if (bytes == 0 || bytes % 512 != 0 || bytes > kMostBytes)
    return fail(ErrorKind::invalid_argument, "invalid_disk_size", "a disk has 512 bytes to 16 TiB, in sectors of 512");
  std::string header("QFI\xfb");
  big_endian(header, std::uint32_t{3});  // version
  big_endian(header, std::uint64_t{0});  // no name of a backing file
  big_endian(header, std::uint32_t{0});
  big_endian(header, kClusterBits);
  big_endian(header, bytes);
  big_endian(header, std::uint32_t{0});  // not encrypted
  big_endian(header, static_cast<std::uint32_t>((bytes + kL2Covers - 1) / kL2Covers));
  big_endian(header, kL1Table * kCluster);
  big_endian(header, kCountTable * kCluster);
  big_endian(header, std::uint32_t{1});  // clusters of that table
  big_endian(header, std::uint32_t{0});  // no internal snapshots
  big_endian(header, std::uint64_t{0});
  big_endian(header, std::uint64_t{1} << 4);  // incompatible features: extended L2 entries
  big_endian(header, std::uint64_t{1} << 0);  // compatible features: lazy reference counts
  big_endian(header, std::uint64_t{0});
  big_endian(header, std::uint32_t{4});    // reference counts of 16 bits
  big_endian(header, std::uint32_t{112});  // length of this header
  header.append(8, '\0');                  // compression: zlib, unused
  header.append(8, '\0');                  // end of header extensions
  std::string table, counts;
  big_endian(table, kCountBlock * kCluster);
  for (std::uint64_t i = 0; i < kClusters; ++i) big_endian(counts, std::uint16_t{1});
  if (::ftruncate(file.get(), static_cast<off_t>(kClusters * kCluster)) != 0) return fail_errno(errno, "size an overlay");
  TRY_VOID(pwrite_all(file, as_bytes(header), 0));
  TRY_VOID(pwrite_all(file, as_bytes(table), kCountTable * kCluster));
  return pwrite_all(file, as_bytes(counts), kCountBlock * kCluster);
}

}  // namespace space::snapshot
