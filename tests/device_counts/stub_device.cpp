// A CUDA device that computes nothing.
//
// PyTorch's FakeTensorMode holds tensors without data.  It asks the device's guard for streams and
// the hooks for generators, which a build without CUDA does not have.  These answer as one idle
// device would, so that every operation of a step on "cuda" can be counted on any machine.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace {

const c10::Device only(c10::DeviceType::CUDA, 0);
const c10::Stream stream(c10::Stream::DEFAULT, only);

class StubGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return only.type(); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device getDevice() const override { return only; }
  c10::Device exchangeDevice(c10::Device) const override { return only; }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Stream getStream(c10::Device) const override { return stream; }
  c10::Stream getNewStream(c10::Device, int) const override { return stream; }
  c10::Stream exchangeStream(c10::Stream) const override { return stream; }
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void destroyEvent(void*, const c10::DeviceIndex) const noexcept override {}
};

class StubHooks final : public at::CUDAHooksInterface {
 public:
  explicit StubHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return false; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return only; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

// Runs when the library is loaded, which must be before PyTorch first asks for its hooks.
const bool registered = [] {
  static StubGuard guard;
  c10::impl::device_guard_impl_registry[static_cast<int>(only.type())].store(&guard);
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs args) {
    return std::unique_ptr<at::CUDAHooksInterface>(new StubHooks(args));
  });
  return true;
}();

}  // namespace
