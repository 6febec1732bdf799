# The broker as an image: compiled where it is built, started as a user of its own, with one volume for its data.
#
#   docker build -t odradek .
#   docker run -p 127.0.0.1:9092:9092 -v odradek-data:/var/lib/odradek odradek
#
# BASE must hold Python 3.11 or newer with venv, and the certificates of the package index.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
RUN apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev python3-dev && rm -rf /var/lib/apt/lists/*
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY pyproject.toml setup.py compiled_modules.txt README.md LICENSE /source/
COPY odradek /source/odradek
COPY config /source/config
COPY protocol /source/protocol
COPY timer /source/timer
COPY purgatory /source/purgatory
COPY storage /source/storage
COPY broker /source/broker
COPY cli /source/cli
COPY pipeline /source/pipeline
COPY pyspark_odradek /source/pyspark_odradek
RUN python3 -m venv /opt/odradek \
    && ODRADEK_BUILD=compiled /opt/odradek/bin/pip install /source[cli,zookeeper] \
    && /opt/odradek/bin/python -m odradek.broker.build_info --require-compiled \
    && /opt/odradek/bin/pip uninstall --yes pip setuptools

FROM ${BASE}
COPY --from=build /opt/odradek /opt/odradek
RUN useradd --system --uid 1001 --home-dir /var/lib/odradek --shell /usr/sbin/nologin odradek \
    && mkdir -p /var/lib/odradek && chown odradek:odradek /var/lib/odradek
ENV PATH=/opt/odradek/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER odradek
WORKDIR /var/lib/odradek
VOLUME /var/lib/odradek
EXPOSE 9092
HEALTHCHECK --interval=30s --timeout=10s --start-period=5s CMD ["odradek", "topics", "list"]
ENTRYPOINT ["odradek"]
CMD ["serve", "--data-dir", "/var/lib/odradek", \
     "--set", "listeners=PLAINTEXT://0.0.0.0:9092", "--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
