#include "vmm/block_graph.h"

#include <gtest/gtest.h>

namespace space::vmm {
namespace {

constexpr const char* kGraph = R"({"nodes": [
  {"id": 1, "type": "block-driver", "name": "file0"}, {"id": 2, "type": "block-driver", "name": "disk0"},
  {"id": 4, "type": "block-driver", "name": "file1"}, {"id": 8, "type": "block-driver", "name": "disk1"},
  {"id": 16, "type": "block-backend", "name": ""}, {"id": 32, "type": "block-driver", "name": "alone"}],
 "edges": [{"parent": 2, "child": 1, "name": "file", "perm": [], "shared-perm": []}, {"parent": 8, "child": 4, "name": "file"},
  {"parent": 8, "child": 2, "name": "backing"}, {"parent": 16, "child": 8, "name": "root"}]})";

std::string chain_of(const std::string& text, std::string_view top) {
  const auto chain = disk_chain(json::parse(text), top);
  if (!chain) return chain.error().code;
  std::string out;
  for (const DiskNode& one : *chain) out += one.node + "(" + one.file + ")";
  return out;
}

std::string with(std::string from, const std::string& what, const std::string& in_place) {
  from.replace(from.find(what), what.size(), in_place);
  return from;
}

TEST(BlockGraph, TheChainGoesFromTheTopToTheLowestImage) {
  EXPECT_EQ(chain_of(kGraph, "disk1"), "disk1(file1)disk0(file0)");
  EXPECT_EQ(chain_of(kGraph, "disk0"), "disk0(file0)");
}

TEST(BlockGraph, WhatIsNoChainIsRefused) {
  EXPECT_EQ(chain_of(kGraph, "disk2"), "qmp_protocol");
  EXPECT_EQ(chain_of(kGraph, "alone"), "qmp_protocol") << "an image without a file";
  EXPECT_EQ(chain_of(with(kGraph, R"("parent": 2, "child": 1, "name": "file")", R"("parent": 2, "child": 8, "name": "backing")"), "disk1"),
            "qmp_protocol");
  EXPECT_EQ(chain_of(with(kGraph, R"("parent": 2, "child": 1)", R"("parent": 2, "child": "x")"), "disk1"), "qmp_protocol");
  EXPECT_EQ(chain_of(with(kGraph, R"("child": 2, "name": "backing")", R"("child": 77, "name": "backing")"), "disk1"), "qmp_protocol");
  EXPECT_EQ(chain_of("[]", "disk1"), "qmp_protocol");
  EXPECT_EQ(chain_of(R"({"nodes": {}, "edges": []})", "disk1"), "qmp_protocol");
}

TEST(BlockGraph, AnImageThatStandsOnItselfIsRefused) {
  EXPECT_EQ(chain_of(R"({"nodes": [{"id": 1, "type": "block-driver", "name": "a"}],
    "edges": [{"parent": 1, "child": 1, "name": "file"}, {"parent": 1, "child": 1, "name": "backing"}]})",
                     "a"),
            "qmp_protocol");
}

}  // namespace
}  // namespace space::vmm
