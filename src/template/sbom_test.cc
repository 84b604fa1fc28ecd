#include "template/sbom.h"

#include "template/test_release.h"

namespace space::tmpl {
namespace {

using SbomTest = WholeRelease;

TEST_F(SbomTest, NamesWhatTheLockNamesAndTheKernel) {
  const auto bill = bill_of_materials(release).value();
  EXPECT_EQ(bill.at("bomFormat"), "CycloneDX");
  EXPECT_EQ(bill.at("specVersion"), "1.5");
  const auto& components = bill.at("components").as_array();
  ASSERT_EQ(components.size(), 3u);
  EXPECT_EQ(components[0].at("name"), "bash");
  EXPECT_EQ(components[0].at("version"), "5.2+1");
  EXPECT_EQ(components[0].at("purl"), "pkg:deb/debian/bash@5.2%2B1?arch=amd64");
  EXPECT_EQ(components[0].at("hashes").at(0).at("content").as_string(), std::string(64, 'a'));
  EXPECT_EQ(components[1].at("purl"), "pkg:deb/debian/dash@1%3A0.5?arch=all");
  EXPECT_EQ(components[2].at("name"), "linux-image-6.1");
  EXPECT_EQ(components[2].at("hashes").at(0).at("content").as_string(), std::string(64, 'c'));
  EXPECT_EQ("sha256:" + std::string(bill.at("metadata").at("component").at("hashes").at(0).at("content").as_string()), release.digest);
  EXPECT_FALSE(bill.contains("compositions"));
  EXPECT_EQ(json::serialize(bill), json::serialize(bill_of_materials(release).value()));
}

TEST_F(SbomTest, SaysThatWhatASandboxAddedIsNotKnown) {
  auto mine = release;
  mine.stands_on = release.digest;
  EXPECT_EQ(bill_of_materials(mine)->at("compositions").at(0).at("aggregate"), "incomplete");
}

TEST_F(SbomTest, ADamagedLockIsAnError) {
  flip(release.rootfs.parent_path() / "lock", 0);
  EXPECT_EQ(bill_of_materials(release).error().code, "template_lock");
}

}  // namespace
}  // namespace space::tmpl
