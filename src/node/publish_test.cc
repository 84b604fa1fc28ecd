#include "node/publish.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/random.h"
#include "node/sandboxes_testing.h"

namespace space::node {
namespace {

TEST(Publisher, FindsADamagedLayerBeforeItIsCopied) {
  asio::io_context loop;
  testing::World w(loop.get_executor());
  ASSERT_TRUE(w.records.open());
  const auto disk = w.dir.path() / "disk.qcow2";
  ASSERT_TRUE(write_file_durable(disk, "right"));
  Vault::Order order;
  order.kind = snapshot::CheckpointKind::file_snapshot;
  order.id = new_id();
  order.record.id = new_id();
  order.record.vm = new_id();
  order.record.tenant = "acme";
  order.record.template_digest = "sha256:00";
  order.record.base_key = "key";
  order.vmm_build = std::string(64, 'b');
  order.disks = {disk};
  {
    const auto kept = w.vault->keep_disk(order);  // its lease ends before the store it is of
    ASSERT_TRUE(kept) << describe(kept.error());
    const auto blob = w.dir.path() / "store" / "tenants" / "acme" / "blobs" / kept->layers.at(0).digest.substr(7) / "data";
    ASSERT_TRUE(write_file_durable(blob, "wrong"));
  }
  w.sandboxes.reset();
  w.vault.reset();
  w.vault = testing::vault_in(w.dir.path());  // another process, which has not written the layer itself

  const tmpl::TemplateStore templates(w.dir.path() / "templates");
  const tmpl::TrustedTemplates trusted(templates, {});
  const tmpl::PublishedStore published(w.dir.path() / "published");
  const Publisher::Parts parts{templates, trusted, published, w.bases, *w.vault, w.driver, w.disk, system_clock()};
  Publisher publisher(loop.get_executor(), parts);
  Publisher::Order wanted;
  wanted.operation = new_id();
  wanted.tenant = "acme";
  wanted.checkpoint = order.id;
  wanted.name = "made";
  wanted.tag = "one";
  std::optional<Result<tmpl::Release>> made;
  asio::co_spawn(loop, publisher.publish(std::move(wanted)),
                 [&](std::exception_ptr, Result<tmpl::Release> result) { made = std::move(result); });
  while (!made && loop.run_one() > 0) {
  }
  ASSERT_TRUE(made && !*made);
  EXPECT_EQ(made->error().code, "blob_corrupt") << describe(made->error());
  EXPECT_FALSE(std::filesystem::exists(w.dir.path() / "published" / "content"));
}

}  // namespace
}  // namespace space::node
