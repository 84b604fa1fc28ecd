// The driver against VMMs that misbehave (a script in place of QEMU), and against real QEMU with a built template.
#include "vmm/qemu_driver.h"

#include <cstdlib>
#include <fcntl.h>
#include <sstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/random.h"
#include "http/client.h"
#include "vmm/test_warden.h"

namespace space::vmm {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr const char* kHostileVmm = R"(#!/usr/bin/env python3
import json, os, re, socket, sys, time
folder = os.path.dirname(sys.argv[0])
mode = open(os.path.join(folder, 'mode')).read()
heard = open(os.path.join(folder, 'heard'), 'w')
listener = socket.socket(fileno=int(re.search(r'id=control,fd=(\d+)', ' '.join(sys.argv)).group(1)))
print('vmm: mode', mode, file=sys.stderr, flush=True)
if mode == 'dies': sys.exit(1)
c, _ = listener.accept()
if mode == 'garbage': c.sendall(b'SSH-2.0-OpenSSH\r\n'); time.sleep(60)
if mode == 'endless':
    while True: c.sendall(b'x' * 65536)
c.sendall(b'{"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}, "capabilities": []}}\n')
for line in c.makefile('rb'):
    command = json.loads(line)
    name, status = command['execute'], {}
    print(name, file=heard, flush=True)
    if name == mode: sys.exit(3)
    if mode == 'no ' + name:
        c.sendall(json.dumps({'error': {'class': 'GenericError', 'desc': 'no'}, 'id': command['id']}).encode() + b'\n')
        continue
    if name == 'add-fd': status = {'fdset-id': 7}
    if name == 'query-block': status = [{'inserted': {'node-name': 'disk0'}}]
    if name == 'query-status': status = {'status': 'running' if mode == 'lies' else 'paused', 'running': False}
    if name == 'ringbuf-read': status = 'bGFzdCB3b3Jkcw=='
    c.sendall(json.dumps({'return': status, 'id': command['id']}).encode() + b'\n')
    if name == 'migrate-incoming':
        result = 'failed' if mode == 'refuses' else 'completed'
        c.sendall(json.dumps({'event': 'MIGRATION', 'data': {'status': result}, 'timestamp': {}}).encode() + b'\n')
    if name == 'cont' and mode == 'shutdown': c.sendall(b'{"event": "SHUTDOWN", "data": {"guest": true}, "timestamp": {}}\n')
    if name == 'quit': sys.exit(0)
)";

class DriverTest : public ::testing::Test {
 protected:
  DriverTest() : dir_(TempDir::make("/tmp", "space-driver-").value()) {}

  void play(std::shared_ptr<TestWarden> warden, std::function<asio::awaitable<void>(QemuDriver&)> body, std::chrono::seconds limit) {
    bool done = false;
    QemuOptions options;
    options.sockets = dir_.path() / "sockets";
    spawn(loop_.get_executor(),
          [](std::shared_ptr<wire::WardenClient> client, BlockingPool& pool, QemuOptions chosen,
             std::function<asio::awaitable<void>(QemuDriver&)> run, bool& finished) -> asio::awaitable<void> {
            auto driver = co_await QemuDriver::open(client, pool, chosen);
            EXPECT_TRUE(driver.has_value());
            co_await run(**driver);
            finished = true;
          }(warden, pool_, options, std::move(body), done));
    loop_.run_for(limit);
    EXPECT_TRUE(done) << "not done in time";
    pool_.join();
    EXPECT_TRUE(warden->list().value().empty());
    EXPECT_TRUE(std::filesystem::is_empty(options.sockets)) << "a control socket is left";
  }

  asio::io_context loop_;
  BlockingPool pool_{2};
  TempDir dir_;
};

TEST_F(DriverTest, SocketsThatNoVmGoesWithAreTakenAway) {
  const auto sockets = dir_.path() / "sockets";
  ASSERT_TRUE(make_directories(sockets, 0700).has_value());
  ASSERT_TRUE(write_file_durable(sockets / (new_id() + ".qmp"), "").has_value());
  const auto nothing = [](QemuDriver&) -> asio::awaitable<void> { co_return; };
  play(std::make_shared<TestWarden>("/bin/false"), nothing, 20s);  // it looks itself
}

class HostileVmm : public DriverTest {
 protected:
  HostileVmm() : images_{new_memory(), new_memory()} {
    const auto script = dir_.path() / "vmm";
    EXPECT_TRUE(write_file_durable(script, kHostileVmm, 0755).has_value());
  }
  static Fd new_memory() { return Fd(::memfd_create("x", MFD_CLOEXEC)); }
  VmSpec spec() {
    VmSpec made;
    made.id = new_id();
    made.images = &images_;
    made.memory = new_memory();
    made.disk.push_back({new_memory(), DiskLayer::Format::qcow2, false});
    return made;
  }
  // What the driver says to a VMM of this mode that is spawned, loaded and resumed.
  Error meet(const std::string& mode) {
    EXPECT_TRUE(write_file_durable(dir_.path() / "mode", mode).has_value());
    Error met;
    auto warden = std::make_shared<TestWarden>((dir_.path() / "vmm").string());
    play(
        warden, [&](QemuDriver& driver) { return use(driver, spec(), new_memory(), met); }, 20s);
    return met;
  }
  static asio::awaitable<void> use(QemuDriver& driver, VmSpec spec, Fd state, Error& met) {
    auto vm = co_await driver.spawn(std::move(spec));
    if (!vm) {
      met = vm.error();
      co_return;
    }
    const DeviceState saved{std::move(state), true};
    Result<> done = co_await (*vm)->load(saved);
    if (done) done = co_await (*vm)->resume();
    if (!done) met = done.error();
    if (done) {
      co_await (*vm)->ended();
      EXPECT_EQ((*vm)->state(), VmState::ended);
      met.message = co_await (*vm)->console_tail();
    }
    done = co_await (*vm)->destroy();
    EXPECT_TRUE(done.has_value());
    done = co_await (*vm)->destroy();  // and again
    EXPECT_TRUE(done.has_value());
  }
  // What comes of a checkpoint's stop with a VMM of this mode: save_devices, switch_disk, resume and discard_disk, each its error's code.
  struct Saved {
    std::string devices, disk, resumed, discarded;
    VmState stood = VmState::waiting;  // after save_devices
    std::vector<std::string> heard;    // by the VMM, from save_devices on
  };
  Saved save(const std::string& mode) {
    EXPECT_TRUE(write_file_durable(dir_.path() / "mode", mode).has_value());
    Saved out;
    auto warden = std::make_shared<TestWarden>((dir_.path() / "vmm").string());
    play(
        warden, [&](QemuDriver& driver) { return stop_and_save(driver, spec(), new_memory(), out); }, 20s);
    bool begun = false;
    std::istringstream lines(read_file(dir_.path() / "heard", 1 << 16).value());
    for (std::string line; std::getline(lines, line);) {
      begun = begun || line == "stop";
      if (begun && line != "ringbuf-read" && line != "remove-fd") out.heard.push_back(line);
    }
    return out;
  }
  static asio::awaitable<void> stop_and_save(QemuDriver& driver, VmSpec spec, Fd state, Saved& out) {
    const auto code = [](const Result<>& done) { return done ? "" : done.error().code; };
    auto vm = (co_await driver.spawn(std::move(spec))).value();
    const DeviceState saved{std::move(state), true};
    EXPECT_TRUE((co_await vm->load(saved)).has_value());
    EXPECT_TRUE((co_await vm->resume()).has_value());
    const Fd overlay = new_memory(), devices = new_memory();
    EXPECT_EQ(code(co_await vm->save_devices(false)), "save_not_prepared");
    EXPECT_TRUE((co_await vm->prepare_save(devices)).has_value());
    EXPECT_TRUE((co_await vm->prepare_disk(overlay)).has_value());
    out.devices = code(co_await vm->save_devices(true));
    out.stood = vm->state();
    if (out.devices.empty()) out.disk = code(co_await vm->switch_disk());
    out.resumed = code(co_await vm->resume());
    out.discarded = code(co_await vm->discard_disk());
    EXPECT_TRUE((co_await vm->destroy()).has_value());
  }
  GuestImages images_;
};

TEST_F(HostileVmm, IsAskedForAllOfACheckpointsStopAndRunsAfterIt) {
  const Saved saved = save("good");
  EXPECT_EQ(saved.devices + saved.disk + saved.resumed, "");
  EXPECT_EQ(saved.stood, VmState::paused);
  EXPECT_EQ(saved.discarded, "vm_state_conflict") << "the disk stands on it";
  EXPECT_THAT(saved.heard, ::testing::ElementsAre("stop", "xen-save-devices-state", "blockdev-snapshot", "cont"));
}
TEST_F(HostileVmm, ThatDoesNotStopRunsOn) {
  const Saved saved = save("no stop");
  EXPECT_EQ(saved.devices, "qmp_error");
  EXPECT_EQ(saved.stood, VmState::running);
  EXPECT_EQ(saved.resumed, "");
  EXPECT_THAT(saved.heard, ::testing::Not(::testing::Contains("cont")));
}
TEST_F(HostileVmm, ThatDoesNotSaveGoesOnWhenItsDiskIsSettled) {
  const Saved saved = save("no xen-save-devices-state");
  EXPECT_EQ(saved.devices, "qmp_error");
  EXPECT_EQ(saved.stood, VmState::paused);
  EXPECT_EQ(saved.resumed, "");
  EXPECT_EQ(saved.discarded, "vm_state_conflict");
  EXPECT_THAT(saved.heard, ::testing::ElementsAre("stop", "xen-save-devices-state", "blockdev-snapshot", "cont"));
}
TEST_F(HostileVmm, ThatDoesNotSwitchGoesOnWithTheDiskThatItHad) {
  const Saved saved = save("no blockdev-snapshot");
  EXPECT_EQ(saved.devices, "");
  EXPECT_EQ(saved.disk, "qmp_error");
  EXPECT_EQ(saved.resumed, "");
  EXPECT_EQ(saved.discarded, "");
  EXPECT_THAT(saved.heard,
              ::testing::ElementsAre("stop", "xen-save-devices-state", "blockdev-snapshot", "cont", "blockdev-del", "blockdev-del"));
}
TEST_F(HostileVmm, ThatDiesWhenItIsStoppedIsReported) {
  const Saved saved = save("stop");
  EXPECT_EQ(saved.devices, "vm_ended");
  EXPECT_EQ(saved.stood, VmState::ended);
  EXPECT_EQ(saved.resumed, "vm_ended");
}
TEST_F(HostileVmm, ThatDiesWhileItIsSavedIsReported) {
  const Saved saved = save("xen-save-devices-state");
  EXPECT_EQ(saved.devices, "vm_ended");
  EXPECT_EQ(saved.resumed, "vm_ended");
}
TEST_F(HostileVmm, ThatDiesWhileItsDiskIsSwitchedIsReported) {
  const Saved saved = save("blockdev-snapshot");
  EXPECT_EQ(saved.disk, "vm_ended");
  EXPECT_EQ(saved.resumed, "vm_ended");
}

TEST_F(HostileVmm, ThatDiesAtOnceIsReportedWithWhatItSaid) {
  const Error error = meet("dies");
  EXPECT_EQ(error.code, "vm_ended");
  EXPECT_THAT(error.message, HasSubstr("vmm: mode dies"));
}
TEST_F(HostileVmm, ThatTalksNonsenseIsGivenUp) { EXPECT_EQ(meet("garbage").code, "qmp_protocol"); }
TEST_F(HostileVmm, ThatTalksWithoutEndIsGivenUp) { EXPECT_EQ(meet("endless").code, "qmp_protocol"); }
TEST_F(HostileVmm, ThatDiesWhileLoadingIsReported) { EXPECT_EQ(meet("migrate-incoming").code, "vm_ended"); }
TEST_F(HostileVmm, ThatDiesWhileResumingIsReported) { EXPECT_EQ(meet("cont").code, "vm_ended"); }
TEST_F(HostileVmm, ThatRefusesTheStateIsReported) { EXPECT_EQ(meet("refuses").code, "vm_state_refused"); }
TEST_F(HostileVmm, ThatRunsWhenItMustNotIsReported) { EXPECT_EQ(meet("lies").code, "vm_state_unexpected"); }
TEST_F(HostileVmm, AGuestThatSwitchesItselfOffLeavesItsLastWords) { EXPECT_THAT(meet("shutdown").message, HasSubstr("last words")); }

// The parts of a built template, found without the folder above this one.
class RealVmm : public DriverTest {
 protected:
  void SetUp() override {
    const char* given = std::getenv("SPACE_TEMPLATES_DIR");
    const std::filesystem::path templates = given ? given : "/var/lib/space/templates";
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, for TAPs and namespaces";
    // Of the default template: others may boot much more.
    const std::string release = read_file(templates / "tags/base/latest.json", 4096).value_or("");
    const std::size_t digest = release.find("sha256:");
    if (digest != std::string::npos) rootfs_ = templates / "content" / release.substr(digest + 7, 64) / "rootfs.ext4";
    kernel_ = find(templates / "kernels", "vmlinux");
    initramfs_ = find(templates / "initramfs", "current");
    if (rootfs_.empty() || kernel_.empty() || initramfs_.empty()) GTEST_SKIP() << "needs a built template in " << templates;
    images_ = {open_file(kernel_, O_RDONLY).value(), open_file(initramfs_, O_RDONLY).value()};
    memory_ = Fd(::memfd_create("guest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(memory_.get(), 512 << 20), 0);
    for (const char* name : {"base.qcow2", "own.qcow2"})
      ASSERT_EQ(std::system(("qemu-img create -q -f qcow2 " + (dir_.path() / name).string() + " 4096M").c_str()), 0);
  }
  static std::filesystem::path find(const std::filesystem::path& folder, const char* name) {
    const auto names = list_directory(folder);
    for (const auto& entry : names ? *names : std::vector<std::string>{})
      if (std::filesystem::exists(folder / entry / name)) return folder / entry / name;
    return {};
  }
  VmSpec spec(bool making) {
    VmSpec made;
    made.id = new_id();
    made.images = &images_;
    made.memory = memory_.duplicate().value();
    made.memory_shared = making;
    if (making) made.begin = VmSpec::Begin::boot;
    made.disk.push_back({open_file(rootfs_, O_RDONLY).value(), DiskLayer::Format::raw, true});
    made.disk.push_back({open_file(dir_.path() / "base.qcow2", making ? O_RDWR : O_RDONLY).value(), DiskLayer::Format::qcow2, !making});
    if (!making) made.disk.push_back({open_file(dir_.path() / "own.qcow2", O_RDWR).value(), DiskLayer::Format::qcow2, false});
    return made;
  }
  Fd state(int flags) { return open_file(dir_.path() / "state", flags, 0600).value(); }

  static asio::awaitable<int> health(Vm& vm) {
    auto executor = co_await asio::this_coro::executor;
    http::Client client(executor, vm.agent_connector());
    http::Request request;
    request.target = "/v1/health";
    auto answer = co_await client.call(request);
    co_return answer ? answer->status : 0;
  }
  static bool exists(pid_t pid) { return std::filesystem::exists(fmt::format("/proc/{}", pid)); }

  static asio::awaitable<void> live(RealVmm& test, QemuDriver& driver);

  std::filesystem::path rootfs_, kernel_, initramfs_;
  GuestImages images_;
  Fd memory_;
};

asio::awaitable<void> RealVmm::live(RealVmm& test, QemuDriver& driver) {
  VmSpec first = test.spec(true);
  auto maker = co_await driver.spawn(std::move(first));
  if (!maker) {
    ADD_FAILURE() << maker.error().message;
    co_return;
  }
  Result<> done = co_await (*maker)->boot();
  EXPECT_TRUE(done.has_value());
  int status = 0;
  for (int i = 0; i < 200 && status != 200; ++i) {
    co_await sleep_for(100ms);
    const std::string tail = co_await (*maker)->console_tail();
    if (tail.find("agent.ready") != std::string::npos) status = co_await health(**maker);
  }
  EXPECT_EQ(status, 200);
  Fd into = test.state(O_RDWR | O_CREAT);
  done = co_await (*maker)->save_base(into);
  EXPECT_TRUE(done.has_value());
  const pid_t maker_pid = (*maker)->pid();
  done = co_await (*maker)->destroy();
  EXPECT_TRUE(done.has_value());
  EXPECT_FALSE(exists(maker_pid));
  EXPECT_EQ(::fcntl(test.memory_.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE), 0);

  VmSpec next = test.spec(false);
  auto made = co_await driver.spawn(std::move(next));
  if (!made) {
    ADD_FAILURE() << made.error().message;
    co_return;
  }
  std::unique_ptr<Vm> vm = std::move(*made);
  done = co_await vm->resume();
  EXPECT_EQ(done.error().code, "vm_state_conflict");
  const DeviceState saved{test.state(O_RDONLY), true};
  const auto start = std::chrono::steady_clock::now();
  done = co_await vm->load(saved);
  EXPECT_TRUE(done.has_value());
  test.RecordProperty("load_us", static_cast<int>((std::chrono::steady_clock::now() - start) / 1us));
  EXPECT_EQ(vm->state(), VmState::paused);
  done = co_await vm->resume();
  EXPECT_TRUE(done.has_value());
  status = co_await health(*vm);
  EXPECT_EQ(status, 200);
  done = co_await vm->pause();
  EXPECT_TRUE(done.has_value());

  // A new node process: the old one's connection goes, the VM stays.
  const std::string id = vm->id();
  const pid_t pid = vm->pid();
  vm.reset();
  EXPECT_TRUE(exists(pid));
  auto ids = co_await driver.list();
  EXPECT_THAT(ids.value(), ::testing::ElementsAre(id));
  auto adopted = co_await driver.adopt(id);
  if (!adopted) {
    ADD_FAILURE() << adopted.error().message;
    co_return;
  }
  EXPECT_EQ((*adopted)->state(), VmState::paused);
  done = co_await (*adopted)->resume();
  EXPECT_TRUE(done.has_value());
  status = co_await health(**adopted);
  EXPECT_EQ(status, 200);
  adopted->reset();
  done = co_await driver.sweep(id);
  EXPECT_TRUE(done.has_value());
  EXPECT_FALSE(exists(pid));
}

TEST_F(RealVmm, BootsIsSavedLoadedPausedAdoptedAndSwept) {
  play(
      std::make_shared<TestWarden>(), [this](QemuDriver& driver) { return live(*this, driver); }, 120s);
}

}  // namespace
}  // namespace space::vmm
