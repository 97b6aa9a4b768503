/* All results of a node, once and in order, and a word when it is silent: cc subscriber.c -lzmq -lcjson */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>
#define NUMBER(m, name) cJSON_GetNumberValue(cJSON_GetObjectItem(m, name)) /* NAN where there is none */
#define TEXT(m, name) cJSON_GetStringValue(cJSON_GetObjectItem(m, name))
static char run[64], body[2 << 20]; /* the node's epoch: new at each start */
static double due, asked;           /* the seq that comes next; the one that was asked for already */
static void *sub, *dealer;
static void replay(void) { /* what is missing, in batches of up to 256 */
    int size = snprintf(body, sizeof body, "{\"v\":1,\"command\":\"replay\",\"request_id\":\"c%.0f\",\"epoch\":\"%s\","
                        "\"after_seq\":%.0f}", due, run, due - 1);
    if (asked != due && zmq_send(dealer, body, (size_t)size, ZMQ_DONTWAIT) > 0) asked = due;
}
static void result(const cJSON *m) { /* one that is not due is a double, or comes again by replay */
    const char *how = cJSON_IsTrue(cJSON_GetObjectItem(m, "replayed")) ? "replayed" : "live";
    if (NUMBER(m, "seq") == due) printf("%s %.0f %s %s %s\n", run, due++, TEXT(m, "verdict"), TEXT(m, "reason"), how);
}
static void message(const cJSON *m, const char *kind, const cJSON *one) {
    double seq = NUMBER(m, *kind == 'h' ? "last_seq" : "seq"), oldest = NUMBER(m, "oldest_seq");
    if (*kind && strcmp(run, TEXT(m, "epoch"))) due = *run ? 1 : seq, strncpy(run, TEXT(m, "epoch"), 63);
    if (!*kind && oldest > due) due = oldest; /* GONE: what was before is lost */
    if (*kind == 'h') asked = 0;              /* was there no answer? ask again */
    if (*kind == 'r') result(m);
    cJSON_ArrayForEach(one, cJSON_GetObjectItem(m, "results")) result(one);
    if (seq >= due || cJSON_IsTrue(cJSON_GetObjectItem(m, "more"))) replay();
}
int main(int argc, char **argv) { /* PUB, ROUTER, and two topics: v1/result/l1/st3/ v1/heartbeat/l1/st3/ */
    void *context = zmq_ctx_new();
    sub = zmq_socket(context, ZMQ_SUB), dealer = zmq_socket(context, ZMQ_DEALER);
    for (int i = 3; i < argc; i++) zmq_setsockopt(sub, ZMQ_SUBSCRIBE, argv[i], strlen(argv[i]));
    if (argc < 5 || zmq_connect(sub, argv[1]) || zmq_connect(dealer, argv[2])) return 1;
    for (int silent = 0, size;; fflush(stdout)) {
        zmq_pollitem_t in[] = {{sub, 0, ZMQ_POLLIN, 0}, {dealer, 0, ZMQ_POLLIN, 0}};
        if (!zmq_poll(in, 2, 1000) && ++silent == 3) puts("FAULT: three heartbeats missed, divert all");
        for (int i = 0; i < 2; i++) /* SUB gives the topic first: it is not JSON */
            while (in[i].revents && (size = zmq_recv(i ? dealer : sub, body, sizeof body, ZMQ_DONTWAIT)) >= 0) {
                cJSON *m = cJSON_ParseWithLength(body, (size_t)size);
                if (m) message(m, TEXT(m, "kind") ? TEXT(m, "kind") : "", NULL), silent = 0;
                cJSON_Delete(m);
            }
    }
}
