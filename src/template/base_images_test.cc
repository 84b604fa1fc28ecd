// Bases of a real template in real virtual machines. Needs root, QEMU and a built template; skipped with the reason otherwise.
#include "template/base_images.h"

#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <set>
#include <unistd.h>

#include "base/clock.h"
#include "base/encoding.h"
#include "base/file.h"
#include "base/random.h"
#include "vmm/qemu_driver.h"
#include "vmm/test_warden.h"
#include "wire/agent_client.h"

namespace space::tmpl {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

double since(SteadyClock::time_point start) { return std::chrono::duration<double, std::milli>(SteadyClock::now() - start).count(); }

// A loaded guest made ready for commands, as node does it.
Task<> initialise(wire::AgentClient& agent, const std::string& id) {
  std::array<std::byte, 64> entropy;
  random_bytes(entropy);
  wire::AgentInit init;
  init.nonce = new_id();
  init.sandbox_id = id;
  init.hostname = id;
  init.machine_id = hex_encode(std::span(entropy).first(16));
  init.wall_ns = system_clock().wall_ms() * 1'000'000;
  init.entropy = std::string(as_text(entropy));
  co_return co_await agent.init(init);
}

Task<std::string> output_of(wire::AgentClient& agent, std::string line, std::string user = "") {
  wire::ProcessSpec spec;
  spec.session = "test";
  spec.shell = std::move(line);
  spec.user = std::move(user);
  CO_TRY(const std::uint32_t process, co_await agent.create(spec));
  CO_TRY(auto stream, co_await agent.attach(process, 0));
  std::string text;
  for (;;) {
    CO_TRY(const auto frames, co_await stream->next());
    if (frames.empty()) co_return text;
    for (const auto& frame : frames)
      if (frame.type == wire::FrameType::stdout_bytes || frame.type == wire::FrameType::stderr_bytes) text += frame.payload;
  }
}

std::string trimmed(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class RealBases : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* where = std::getenv("SPACE_TEMPLATES_DIR");
    const std::string templates = where ? where : "/var/lib/space/templates";
    if (::getuid() != 0) GTEST_SKIP() << "needs root, for TAPs and namespaces";
    auto release = TemplateStore(templates).resolve("base:latest");
    if (!release) GTEST_SKIP() << "needs the template base:latest in " << templates << ": " << release.error().message;
    release_ = *release;
    size_ = {release_.cpus, release_.memory_mib, release_.disk_mib};
    dir_.emplace(TempDir::make("/tmp", "space-bases-").value());
    // With a running warden the same test sees the VMM in its jail.
    if (const char* socket = std::getenv("SPACE_WARDEN_SOCKET"))
      warden_ = wire::WardenClient::connect(socket).value();
    else
      warden_ = std::make_shared<vmm::TestWarden>();
  }
  void run(asio::awaitable<void> (*test)(RealBases&), std::chrono::seconds limit = 240s) {
    bool done = false;
    spawn(loop_.get_executor(), [](RealBases& self, asio::awaitable<void> (*body)(RealBases&), bool& finished) -> asio::awaitable<void> {
      vmm::QemuOptions options;
      options.sockets = self.dir_->path() / "sockets";
      auto driver = co_await vmm::QemuDriver::open(self.warden_, self.pool_, options);
      EXPECT_TRUE(driver.has_value());
      self.driver_ = std::move(*driver);
      co_await body(self);
      finished = true;
    }(*this, test, done));
    loop_.run_for(limit);
    EXPECT_TRUE(done) << "the test did not end in time";
    EXPECT_TRUE(warden_->list().value().empty());
    EXPECT_TRUE(std::filesystem::is_empty(dir_->path() / "sockets"));
    pool_.join();
  }
  std::filesystem::path bases() const { return dir_->path() / "bases"; }

  Task<std::unique_ptr<vmm::Vm>> clone(BaseImages& images, const Base& base) {
    const std::string id = new_id();
    CO_TRY(Fd overlay, open_file(dir_->path() / (id + ".qcow2"), O_RDWR | O_CREAT, 0600));
    CO_TRY_VOID(copy_file_sparse(base.empty_overlay, overlay));
    CO_TRY(auto vm, co_await images.spawn(base, id, std::move(overlay)));
    CO_TRY_VOID(co_await images.load(base, *vm));
    CO_TRY_VOID(co_await vm->resume());
    co_return vm;
  }
  // What a command prints in a fresh clone, which is ready for more afterwards.
  asio::awaitable<std::string> say(wire::AgentClient& agent, std::string line, std::string user = "") {
    auto text = co_await output_of(agent, std::move(line), std::move(user));
    co_return text ? trimmed(*text) : "failed: " + text.error().message;
  }

  static asio::awaitable<void> make_and_clone(RealBases& t);
  static asio::awaitable<void> fail_and_leave_nothing(RealBases& t);
  static asio::awaitable<void> get_into(BaseImages& images, RealBases& t, std::vector<std::shared_ptr<const Base>>& found) {
    auto base = co_await images.get(t.release_, t.size_);
    if (!base) ADD_FAILURE() << base.error().code << ": " << base.error().message;
    found.push_back(base.value_or(nullptr));
  }

  Release release_;
  vmm::Size size_;
  std::optional<TempDir> dir_;
  std::shared_ptr<wire::WardenClient> warden_;
  asio::io_context loop_;
  BlockingPool pool_{4};
  std::unique_ptr<vmm::QemuDriver> driver_;
};

asio::awaitable<void> RealBases::make_and_clone(RealBases& t) {
  BaseImages images(t.bases(), *t.driver_, t.pool_);
  // Three ask at once, one base is made.
  std::vector<std::shared_ptr<const Base>> found;
  auto start = SteadyClock::now();
  for (int i = 0; i < 3; ++i) spawn(t.loop_.get_executor(), get_into(images, t, found));
  while (found.size() < 3) co_await sleep_for(50ms);
  t.RecordProperty("make_ms", static_cast<int>(since(start)));
  const auto base = found[0];
  if (!base) co_return;
  EXPECT_EQ(found[1], base);
  EXPECT_EQ(found[2], base);
  EXPECT_EQ(list_directory(t.bases()).value(), std::vector<std::string>{base->key});

  // Another process finds it on the disk.
  BaseImages other(t.bases(), *t.driver_, t.pool_);
  start = SteadyClock::now();
  auto again = co_await other.get(t.release_, t.size_);
  EXPECT_TRUE(again.has_value());
  EXPECT_LT(since(start), 5'000) << "it was made again";

  std::vector<std::unique_ptr<vmm::Vm>> clones;
  std::set<std::string> random;
  for (int i = 0; i < 2; ++i) {
    auto vm = co_await t.clone(images, *base);
    if (!vm) {
      ADD_FAILURE() << vm.error().code << ": " << vm.error().message;
      break;
    }
    wire::AgentClient agent(t.loop_.get_executor(), (*vm)->agent_connector());
    auto ready = co_await initialise(agent, (*vm)->id());
    EXPECT_TRUE(ready.has_value());
    auto kernel = co_await t.say(agent, "uname -r");
    EXPECT_NE(kernel, trimmed(read_file("/proc/sys/kernel/osrelease", 100).value()));
    auto answer = co_await t.say(agent, "python3 -c 'print(6*7)'");
    EXPECT_EQ(answer, "42");
    auto uuid = co_await t.say(agent, "cat /proc/sys/kernel/random/uuid");
    EXPECT_TRUE(random.insert(uuid).second) << "two clones share random state";
    auto marks = co_await t.say(agent, "cat /root/mark; echo $HOSTNAME > /root/mark; sync; cat /root/mark", "root");
    EXPECT_EQ(marks, "cat: /root/mark: No such file or directory\n" + (*vm)->id());
    clones.push_back(std::move(*vm));
  }
  for (auto& vm : clones) {
    auto gone = co_await vm->destroy();
    EXPECT_TRUE(gone.has_value());
  }
  // Nothing of the clones reached the base.
  for (const char* name : {"memory", "state", "overlay.qcow2"}) EXPECT_EQ(::access((t.bases() / base->key / name).c_str(), F_OK), 0);
  BaseImages last(t.bases(), *t.driver_, t.pool_);
  start = SteadyClock::now();
  again = co_await last.get(t.release_, t.size_);
  EXPECT_TRUE(again.has_value());
  EXPECT_LT(since(start), 5'000) << "it was damaged and made again";
}

asio::awaitable<void> RealBases::fail_and_leave_nothing(RealBases& t) {
  BaseImages images(t.bases(), *t.driver_, t.pool_);
  Release broken = t.release_;
  broken.initramfs = t.dir_->path() / "initramfs";
  EXPECT_TRUE(write_file_durable(broken.initramfs, "not an archive").has_value());
  auto base = co_await images.get(broken, t.size_);
  EXPECT_FALSE(base.has_value());
  EXPECT_TRUE(std::filesystem::is_empty(t.bases()));
  vmm::Size small = t.size_;
  small.disk_mib = 16;
  base = co_await images.get(t.release_, small);
  EXPECT_EQ(base.error().code, "disk_too_small");
  EXPECT_TRUE(std::filesystem::is_empty(t.bases()));
}

TEST_F(RealBases, AreMadeOnceAndClonedCopyOnWrite) { run(&RealBases::make_and_clone); }
TEST_F(RealBases, AFailedMakingLeavesNothing) { run(&RealBases::fail_and_leave_nothing); }

}  // namespace
}  // namespace space::tmpl
