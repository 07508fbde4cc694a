# The command line in a container. For the CPU, and for NVIDIA's GPUs:
#   docker build -t gpu-denoise .
#   docker build -t gpu-denoise --build-arg BASE=nvidia/cuda:12.6.3-base-ubuntu24.04 .
#   docker run --rm --gpus all -v "$PWD:/data" gpu-denoise bm3d image.tif -o denoised.tif
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get update && \
    apt-get install --yes --no-install-recommends python3-venv pocl-opencl-icd && \
    rm -rf /var/lib/apt/lists/*
COPY . /opt/source
RUN python3 -m venv /opt/venv && \
    /opt/venv/bin/pip install --no-cache-dir "/opt/source[zarr,formats,cluster]" && \
    rm -r /opt/source
# The library of NVIDIA's driver comes from the host; the package finds it.
ENV PATH=/opt/venv/bin:$PATH NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
WORKDIR /data
ENTRYPOINT ["gpu-denoise"]
CMD ["devices"]
