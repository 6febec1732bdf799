# The broker as an image: compiled where it is built, started as a user of its own, with one volume for its data.
#
#   docker build -t odradek .
#   docker run -p 127.0.0.1:9092:9092 -v odradek-data:/var/lib/odradek odradek
#
# Its target `zookeeper` is the ZooKeeper of docker-compose.cluster.yml.
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
COPY clients /source/clients
COPY testing /source/testing
COPY cli /source/cli
COPY pipeline /source/pipeline
COPY pyspark_odradek /source/pyspark_odradek
RUN python3 -m venv /opt/odradek \
    && ODRADEK_BUILD=compiled /opt/odradek/bin/pip install /source[cli,security,telemetry,zookeeper] \
    && /opt/odradek/bin/python -m odradek.broker.build_info --require-compiled \
    && /opt/odradek/bin/pip uninstall --yes pip setuptools

# Debian's ZooKeeper without its scripts: the package `zookeeper` brings a desktop's Java.
FROM ${BASE} AS zookeeper
RUN mkdir -p /usr/share/man/man1 && apt-get update \
    && apt-get install --yes --no-install-recommends libzookeeper-java openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 1002 --home-dir /var/lib/zookeeper --shell /usr/sbin/nologin zookeeper \
    && mkdir -p /var/lib/zookeeper && chown zookeeper:zookeeper /var/lib/zookeeper
COPY config/zoo.cfg /etc/zookeeper/zoo.cfg
USER zookeeper
WORKDIR /var/lib/zookeeper
VOLUME /var/lib/zookeeper
EXPOSE 2181
HEALTHCHECK --interval=10s --timeout=5s --start-period=10s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/2181 && printf ruok >&3 && grep -q imok <&3"]
ENTRYPOINT ["java", "-Xmx512m", "-cp", "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar", \
            "org.apache.zookeeper.server.quorum.QuorumPeerMain"]
CMD ["/etc/zookeeper/zoo.cfg"]

FROM ${BASE}
COPY --from=build /opt/odradek /opt/odradek
RUN useradd --system --uid 1001 --home-dir /var/lib/odradek --shell /usr/sbin/nologin odradek \
    && mkdir -p /var/lib/odradek && chown odradek:odradek /var/lib/odradek
ENV PATH=/opt/odradek/bin:${PATH} PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER odradek
WORKDIR /var/lib/odradek
VOLUME /var/lib/odradek
EXPOSE 9092
HEALTHCHECK --interval=30s --timeout=10s --start-period=5s CMD ["odradek", "health"]
ENTRYPOINT ["odradek"]
CMD ["serve", "--data-dir", "/var/lib/odradek", "--metrics-port", "9404", \
     "--set", "listeners=PLAINTEXT://0.0.0.0:9092", "--set", "advertised.listeners=PLAINTEXT://localhost:9092"]
