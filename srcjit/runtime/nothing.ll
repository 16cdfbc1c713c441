; What Triton links in place of libdevice where no function of that is called.
