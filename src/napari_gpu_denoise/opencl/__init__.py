"""Devices, kernel sources, programs and memory: everything that talks to OpenCL."""
