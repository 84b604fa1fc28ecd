#include "template/initramfs.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/file.h"
#include "template/archive_reader.h"

namespace space::tmpl {
namespace {

// An ELF program of one segment, followed by what stands for symbols.
std::string elf_program(std::uint32_t type = PT_LOAD) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_machine = EM_X86_64;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  header.e_shoff = 500;
  header.e_shnum = 3;
  Elf64_Phdr segment{};
  segment.p_type = type;
  segment.p_offset = 200;
  segment.p_filesz = 100;
  std::string out(600, 's');
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, &segment, sizeof segment);
  return out;
}

TEST(CpioTest, EntriesAreSortedAndCarryNothingOfThisMachine) {
  const auto bytes = make_cpio({{"modules/b.ko", 0644, "bb"}, {"init", 0755, "run"}, {"modules/a.ko", 0644, ""}});
  ASSERT_TRUE(bytes);
  EXPECT_TRUE(bytes->starts_with("070701"));
  auto reader = ArchiveReader::open_bytes(*bytes, false);
  ASSERT_TRUE(reader);
  std::string seen;
  for (;;) {
    auto entry = reader->next();
    ASSERT_TRUE(entry) << describe(entry.error());
    if (!*entry) break;
    EXPECT_EQ(archive_entry_mtime(*entry), 0);
    EXPECT_EQ(archive_entry_uid(*entry), 0);
    seen += std::string(archive_entry_pathname(*entry)) + "=" + *reader->content(100) + ";";
    if (std::string(archive_entry_pathname(*entry)) == "init") {
      EXPECT_EQ(archive_entry_mode(*entry), S_IFREG | 0755U);
    }
  }
  EXPECT_EQ(seen, "modules=;init=run;modules/a.ko=;modules/b.ko=bb;");
}

TEST(CpioTest, SameFilesSameBytes) {
  const std::vector<InitramfsFile> files = {{"init", 0755, "run"}, {"modules/a.ko", 0644, "a"}};
  EXPECT_EQ(*make_cpio(files), *make_cpio({files[1], files[0]}));
  EXPECT_NE(*make_cpio(files), *make_cpio({files[0]}));
}

TEST(LoadablePartTest, SegmentsStayAndSymbolsGo) {
  const auto part = loadable_part(elf_program());
  ASSERT_TRUE(part) << describe(part.error());
  EXPECT_EQ(part->size(), 300U);
  Elf64_Ehdr header;
  std::memcpy(&header, part->data(), sizeof header);
  EXPECT_EQ(header.e_shnum, 0);
  EXPECT_EQ(header.e_shoff, 0U);
}

TEST(LoadablePartTest, WhatTheKernelCouldNotRunIsRefused) {
  auto cut = elf_program();
  cut.resize(250);
  auto wild = elf_program();
  const std::uint64_t far = ~std::uint64_t{0};
  std::memcpy(wild.data() + sizeof(Elf64_Ehdr) + offsetof(Elf64_Phdr, p_offset), &far, sizeof far);
  auto table = elf_program();
  std::memcpy(table.data() + offsetof(Elf64_Ehdr, e_phoff), &far, sizeof far);
  for (const auto& bytes : {std::string("#!/bin/sh\n"), std::string(), cut, wild, table, elf_program(PT_INTERP)})
    EXPECT_EQ(loadable_part(bytes).error().code, "agent_program");
}

TEST(InitramfsTest, HoldsTheAgentAndTheModulesOfTheOrder) {
  const auto dir = *TempDir::make(std::filesystem::temp_directory_path(), "space-initramfs-");
  std::ofstream(dir.path() / "agent") << elf_program();
  std::ofstream(dir.path() / "order") << "one.ko\n";
  std::ofstream(dir.path() / "one.ko") << "module";
  const auto made = make_initramfs(dir.path() / "agent", dir.path());
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(*made, *make_initramfs(dir.path() / "agent", dir.path()));
  EXPECT_NE(made->find("modules/one.ko"), std::string::npos);

  std::ofstream(dir.path() / "order") << "../one.ko\n";
  EXPECT_EQ(make_initramfs(dir.path() / "agent", dir.path()).error().code, "template_kernel");
  EXPECT_EQ(make_initramfs(dir.path() / "nowhere", dir.path()).error().code, "agent_missing");
}

}  // namespace
}  // namespace space::tmpl
