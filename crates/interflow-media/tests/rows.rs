//! Known bugs of media proxies, with one test each: first manifests, then playlists. Addressing modes are covered in
//! full by `dash.rs`, tags by `hls.rs`, and both through the binary in `crates/interflow/tests/media`.

use interflow_media::dash::model::{self, DashManifest, DashMediaKind};
use interflow_media::dash::to_hls::{self, DashTrack, HlsOptions, PlaylistHeader, PlaylistPeriod};
use interflow_media::dash::{segments, time, to_mpd, xml};
use interflow_media::hls::rewrite::SegmentEncryption;
use interflow_media::hls::{HlsRewriteOptions, UriReplacer, UriRole, rewrite};
use interflow_media::relay::BaseUrl;

fn read(text: &str) -> DashManifest {
    model::read(&xml::read(text.as_bytes()).unwrap(), &BaseUrl::parse("http://o.test/d/m.mpd").unwrap()).unwrap()
}

/// The addresses of a period's first track.
fn of_period(manifest: &DashManifest, period: usize, now: f64) -> Vec<String> {
    let period = &manifest.periods[period];
    let own = &period.sets[0].representations[0];
    let base = BaseUrl::parse(&own.bases[0]).unwrap();
    let address = |s: segments::DashSegment| base.resolve(s.address.as_deref().unwrap_or_default());
    segments::list(own, period, manifest, now).unwrap().into_iter().map(address).collect()
}

/// A track of eight seconds.
fn track(inside: &str) -> DashManifest {
    read(&format!(
        "<MPD mediaPresentationDuration='PT8S'><Period><AdaptationSet mimeType='video/mp4'>{inside}</AdaptationSet></Period></MPD>"
    ))
}

fn addresses(inside: &str) -> Vec<String> {
    of_period(&track(inside), 0, 0.0).into_iter().map(|a| a.replace("http://o.test/d/", "")).collect()
}

/// Like `track`, with a template in its representation.
fn template(attributes: &str, timeline: &str) -> Vec<String> {
    addresses(&format!(
        "<Representation id='v' bandwidth='5'><SegmentTemplate {attributes}>{timeline}</SegmentTemplate></Representation>"
    ))
}

fn live(attributes: &str, template: &str) -> DashManifest {
    read(&format!(
        "<MPD type='dynamic' {attributes}><Period start='PT0S'><AdaptationSet contentType='video'>\
         <SegmentTemplate media='$Number$' duration='4' {template}/><Representation id='v'/></AdaptationSet></Period></MPD>"
    ))
}

/// How many segments a live track of that kind has.
fn count(manifest: &DashManifest, now: f64) -> usize {
    of_period(manifest, 0, now).len()
}

#[test]
fn number_format_widths() {
    for (format, becomes) in [("%05d", "00001"), ("%04d", "0001"), ("%09d", "000000001"), ("%01d", "1"), ("", "1")] {
        assert_eq!(template(&format!("media='$Number{format}$' duration='8'"), ""), [becomes], "{format}");
    }
}

#[test]
fn the_time_of_a_first_segment_is_zero() {
    assert_eq!(template("media='$Time$'", "<SegmentTimeline><S t='0' d='8'/></SegmentTimeline>"), ["0"]);
    assert_eq!(template("media='$Time$'", "<SegmentTimeline><S d='8'/></SegmentTimeline>"), ["0"]);
}

#[test]
fn the_other_identifiers() {
    let one = "<SegmentTimeline><S t='7' d='8'/></SegmentTimeline>";
    assert_eq!(template("media='$Time%04d$'", one), ["0007"]);
    assert_eq!(template("media='a$$b'", one), ["a$b"]);
    assert_eq!(template("media='$Bandwidth%03d$-$RepresentationID$'", one), ["005-v"]);
    let parts = "<SegmentTimeline><S t='0' d='8' k='2'/></SegmentTimeline>";
    assert_eq!(template("media='$Number$.$SubNumber%02d$'", parts), ["1.01", "1.02"]);
}

#[test]
fn a_run_that_repeats_to_the_end() {
    let runs = "<SegmentTimeline><S t='0' d='2' r='-1'/></SegmentTimeline>";
    assert_eq!(template("media='$Time$'", runs), ["0", "2", "4", "6"]);
}

#[test]
fn bases_of_every_level() {
    let text = "<MPD mediaPresentationDuration='PT8S'><BaseURL>m/</BaseURL><Period><BaseURL>p/</BaseURL>\
        <AdaptationSet contentType='video'><BaseURL>a/</BaseURL><Representation><BaseURL>r/</BaseURL>\
        <SegmentTemplate media='s' duration='8'/></Representation></AdaptationSet></Period></MPD>";
    assert_eq!(of_period(&read(text), 0, 0.0), ["http://o.test/d/m/p/a/r/s"]);
}

#[test]
fn alternative_base_urls() {
    let manifest = track(
        "<BaseURL>http://a.test/</BaseURL><BaseURL>http://b.test/</BaseURL><Representation><SegmentTemplate media='s' duration='8'/></Representation>",
    );
    assert_eq!(manifest.periods[0].sets[0].representations[0].bases, ["http://a.test/", "http://b.test/"]);
}

#[test]
fn a_template_split_over_set_and_representation() {
    let text = "<SegmentTemplate timescale='10' duration='40' initialization='i'/><Representation id='v'><SegmentTemplate media='$Number$'/></Representation>";
    assert_eq!(addresses(text), ["1", "2"]);
    assert_eq!(track(text).periods[0].sets[0].representations[0].addressing.init.address.as_deref(), Some("i"));
}

#[test]
fn a_template_of_the_period() {
    let text = "<MPD mediaPresentationDuration='PT8S'><Period><SegmentTemplate media='$Number$' duration='4'/>\
        <AdaptationSet contentType='audio'><Representation/></AdaptationSet></Period></MPD>";
    assert_eq!(of_period(&read(text), 0, 0.0), ["http://o.test/d/1", "http://o.test/d/2"]);
}

/// Two periods of eight and four seconds with the same names in both.
const PERIODS: &str = "<MPD mediaPresentationDuration='PT12S'><Period duration='PT8S'><AdaptationSet id='1' contentType='video'>\
    <SegmentTemplate media='a$Number$' duration='4'/><Representation id='v' bandwidth='1'/></AdaptationSet></Period>\
    <Period><AdaptationSet id='1' contentType='video'><SegmentTemplate media='b$Number$' duration='4' presentationTimeOffset='100'/>\
    <Representation id='v' bandwidth='1'/></AdaptationSet></Period></MPD>";

fn playlist(manifest: &DashManifest, now: f64) -> String {
    let part = |period| {
        let track =
            to_hls::find(period, "1_v_1", Some(DashMediaKind::Video), "").or_else(|| to_hls::tracks(period).next())?;
        Some(PlaylistPeriod {
            period,
            track,
            segments: segments::list(track.own, period, manifest, now).unwrap(),
            init: None,
        })
    };
    let parts: Vec<PlaylistPeriod<'_>> = manifest.periods.iter().filter_map(part).collect();
    to_hls::media(manifest, &parts, PlaylistHeader::default(), |wanted| match wanted {
        to_hls::UrlKind::Init(_) => None,
        to_hls::UrlKind::Segment(_, segment) => segment.address.clone(),
    })
    .unwrap()
}

#[test]
fn periods_with_equal_ids_keep_their_durations_and_get_a_discontinuity() {
    let text = playlist(&read(PERIODS), 0.0);
    let lines: Vec<_> = text.lines().filter(|l| !l.starts_with("#EXT") || l.contains("DISCONTINUITY")).collect();
    assert_eq!(lines, ["a1", "a2", "#EXT-X-DISCONTINUITY", "b1"]);
}

#[test]
fn an_offset_of_presentation_time_holds_for_its_period() {
    let manifest = read(PERIODS);
    let period = &manifest.periods[1];
    let all = segments::list(&period.sets[0].representations[0], period, &manifest, 0.0).unwrap();
    assert_eq!((all[0].start, all[0].time, period.start), (0.0, 100, 8.0));
}

#[test]
fn lists_with_bases_numbers_and_timelines() {
    let text = "<BaseURL>x/</BaseURL><Representation><SegmentList startNumber='3'><SegmentTimeline><S t='0' d='5'/><S d='3'/></SegmentTimeline>\
        <SegmentURL media='1'/><SegmentURL media='2'/></SegmentList></Representation>";
    assert_eq!(addresses(text), ["x/1", "x/2"]);
    let manifest = track(text);
    let period = &manifest.periods[0];
    let all = segments::list(&period.sets[0].representations[0], period, &manifest, 0.0).unwrap();
    let seen: Vec<_> = all.iter().map(|s| (s.number, s.duration)).collect();
    assert_eq!(seen, [(3, 5.0), (4, 3.0)]);
}

#[test]
fn sets_without_ids_are_distinguished() {
    let text = "<MPD mediaPresentationDuration='PT8S'><Period><SegmentTemplate media='$RepresentationID$' duration='8'/>\
        <AdaptationSet contentType='audio' lang='de'><Representation id='a' bandwidth='1'/></AdaptationSet>\
        <AdaptationSet contentType='audio' lang='en'><Representation id='a' bandwidth='1'/></AdaptationSet></Period></MPD>";
    let manifest = read(text);
    let names: Vec<_> = to_hls::tracks(&manifest.periods[0]).map(|t| t.profile()).collect();
    assert_eq!(names, ["n0_a_1", "n1_a_1"]);
}

#[test]
fn kinds_without_a_media_type() {
    for (attributes, media) in [
        ("contentType='video'", DashMediaKind::Video),
        ("contentType='audio'", DashMediaKind::Audio),
        ("codecs='hev1.1.6.L93.B0'", DashMediaKind::Video),
        ("codecs='av01.0.05M.08'", DashMediaKind::Video),
        ("codecs='dvh1.05.06'", DashMediaKind::Video),
        ("codecs='ec-3'", DashMediaKind::Audio),
        ("codecs='stpp'", DashMediaKind::Text),
        ("width='640'", DashMediaKind::Video),
    ] {
        let text = format!("<MPD><Period><AdaptationSet {attributes}><Representation/></AdaptationSet></Period></MPD>");
        assert_eq!(read(&text).periods[0].sets[0].media, media, "{attributes}");
    }
}

#[test]
fn end_number_limits_the_segments() {
    assert_eq!(template("media='$Number$' duration='2' endNumber='3'", ""), ["1", "2", "3"]);
    let runs = "<SegmentTimeline><S t='0' d='2' r='-1'/></SegmentTimeline>";
    assert_eq!(template("media='$Number$' endNumber='2'", runs), ["1", "2"]);
}

#[test]
fn ept_delta_shifts_the_first_segment() {
    let starts = |delta: &str| {
        let text =
            format!("<Representation><SegmentTemplate media='s' duration='4' eptDelta='{delta}'/></Representation>");
        let manifest = track(&text);
        let period = &manifest.periods[0];
        let all = segments::list(&period.sets[0].representations[0], period, &manifest, 0.0).unwrap();
        all.iter().map(|s| s.start).collect::<Vec<_>>()
    };
    assert_eq!((starts("0"), starts("-1"), starts("2")), (vec![0.0, 4.0], vec![-1.0, 3.0, 7.0], vec![2.0, 6.0]));
}

#[test]
fn availability_time_offset_lists_segments_early() {
    let at = "availabilityStartTime='1970-01-01T00:00:00Z'";
    assert_eq!(count(&live(at, ""), 9.0), 2);
    assert_eq!(count(&live(at, "availabilityTimeOffset='3'"), 9.0), 3);
}

#[test]
fn suggested_presentation_delay_sets_the_start() {
    assert_eq!(live("suggestedPresentationDelay='PT12S'", "").delay, Some(12.0));
}

#[test]
fn utc_timing_location_and_patch_location() {
    let text = "<MPD type='dynamic'><Location>../n.mpd</Location><PatchLocation>p.mpp</PatchLocation>\
        <UTCTiming schemeIdUri='urn:mpeg:dash:utc:direct:2014' value='1970-01-01T00:01:00Z'/><Period/></MPD>";
    let manifest = read(text);
    assert_eq!(manifest.location.as_deref(), Some("http://o.test/n.mpd"));
    assert_eq!(manifest.clocks, [("urn:mpeg:dash:utc:direct:2014".to_owned(), "1970-01-01T00:01:00Z".to_owned())]);
    // A patch would bypass the gateway; without one, the whole manifest is fetched again.
    assert!(!as_mpd(text).contains("PatchLocation"));
}

fn as_mpd(text: &str) -> String {
    let mut root = xml::read(text.as_bytes()).unwrap();
    let manifest = model::read(&root, &BaseUrl::parse("http://o.test/d/m.mpd").unwrap()).unwrap();
    to_mpd::rewrite(&mut root, &manifest, "http://ours.test/m.mpd", false, u64::MAX, &mut |_| {
        "http://ours.test/s".to_owned()
    })
    .unwrap();
    let mut out = String::new();
    root.write(&mut out);
    out
}

#[test]
fn remote_periods_are_refused_and_resolve_to_zero_is_omitted() {
    let xlink = |href: &str| format!("<MPD><Period id='a' xlink:href='{href}'/><Period id='b'/></MPD>");
    let remote = xlink("http://169.254.169.254/p.xml");
    let root = xml::read(remote.as_bytes()).unwrap();
    let refused = model::read(&root, &BaseUrl::parse("http://o.test/m.mpd").unwrap()).unwrap_err();
    assert!(refused.to_string().contains("xlink"), "{refused}");
    assert_eq!(read(&xlink("urn:mpeg:dash:resolve-to-zero:2013")).periods.len(), 1);
}

#[test]
fn events_and_properties_are_kept_and_content_steering_is_removed() {
    let text = "<MPD><ContentSteering>http://s.test/</ContentSteering><Period><EventStream schemeIdUri='urn:scte:scte35:2013:xml'><Event id='1'>x</Event></EventStream>\
        <AdaptationSet contentType='video'><InbandEventStream schemeIdUri='e'/><SupplementalProperty schemeIdUri='p' value='1'/>\
        <SegmentTemplate media='$Number$' duration='4'/><Representation/></AdaptationSet></Period></MPD>";
    let out = as_mpd(text);
    for stays in ["<Event id=\"1\">x</Event>", "<InbandEventStream schemeIdUri=\"e\"/>", "<SupplementalProperty "] {
        assert!(out.contains(stays), "{stays}\n{out}");
    }
    assert!(!out.contains("ContentSteering"), "it would lead past us: {out}");
}

#[test]
fn live_manifest_without_availability_start_time() {
    assert!(live("", "").is_live && count(&live("", ""), 9.0) == 2);
}

#[test]
fn urls_are_resolved_against_the_redirect_target() {
    let text = "<MPD mediaPresentationDuration='PT8S'><Period><AdaptationSet contentType='video'><Representation>\
        <SegmentTemplate media='s' duration='8'/></Representation></AdaptationSet></Period></MPD>";
    let manifest =
        model::read(&xml::read(text.as_bytes()).unwrap(), &BaseUrl::parse("https://cdn.test/x/y.mpd").unwrap());
    assert_eq!(of_period(&manifest.unwrap(), 0, 0.0), ["https://cdn.test/x/s"]);
}

#[test]
fn a_live_segment_is_not_listed_before_it_is_whole() {
    let manifest = live("availabilityStartTime='1970-01-01T00:00:00Z'", "");
    assert_eq!([3.9, 4.0, 7.9, 8.0].map(|now| count(&manifest, now)), [0, 1, 1, 2]);
}

#[test]
fn times_and_durations_of_every_form() {
    assert_eq!(time::duration("P2W"), Some(1_209_600.0));
    assert_eq!(time::duration("-PT1.5S"), Some(-1.5));
    assert_eq!(live("availabilityStartTime='1970-01-01T00:01:00'", "").available, 60.0, "no zone: it is UTC");
    assert_eq!(live("availabilityStartTime='1970-01-01T01:01:00+01:00'", "").available, 60.0);
    assert_eq!(time::format_date_time(60.0), "1970-01-01T00:01:00.000Z");
}

#[test]
fn more_than_five_heights_and_four_languages() {
    let sets: String = (0..9)
        .map(|n| format!("<AdaptationSet contentType='audio' codecs='mp4a.40.2' lang='l{n}'><Representation id='a{n}'/></AdaptationSet>"))
        .collect();
    let videos: String =
        (0..9).map(|n| format!("<Representation id='v{n}' height='{}' width='9'/>", 100 + n)).collect();
    let text = format!(
        "<MPD><Period><SegmentTemplate media='s' duration='1'/><AdaptationSet contentType='video'>{videos}</AdaptationSet>{sets}</Period></MPD>"
    );
    let manifest = read(&text);
    let out =
        to_hls::master(&manifest.periods[0], &HlsOptions::default(), |t: DashTrack<'_>| t.own.id.clone()).unwrap();
    assert_eq!((out.matches("#EXT-X-STREAM-INF").count(), out.matches("#EXT-X-MEDIA:TYPE=AUDIO").count()), (9, 9));
}

/// Puts `<…>` around every address.
struct Marks;

impl UriReplacer for Marks {
    fn write_uri(&mut self, _: UriRole, address: &str, _: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("<{address}>").as_bytes());
    }
}

fn rewritten(text: &str) -> String {
    let base = BaseUrl::parse("http://o.test/m.m3u8").unwrap();
    String::from_utf8(rewrite(text.as_bytes(), &base, &HlsRewriteOptions::default(), &mut Marks)).unwrap()
}

#[test]
fn two_keys_for_one_segment() {
    let text = "#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"skd://1\",KEYFORMAT=\"com.apple.streamingkeydelivery\"\n#EXT-X-KEY:METHOD=SAMPLE-AES,URI=\"data:x\",KEYFORMAT=\"urn:uuid:e\"\n";
    assert_eq!(rewritten(text), text);
}

#[test]
fn parts_preload_hints_and_rendition_reports_are_rewritten() {
    let text = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-PART:DURATION=1,URI=\"p\"\n#EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"h\"\n#EXT-X-RENDITION-REPORT:URI=\"r.m3u8\",LAST-MSN=3\n";
    let mut expected = text.to_owned();
    for name in ["p", "h", "r.m3u8"] {
        expected = expected.replace(&format!("URI=\"{name}\""), &format!("URI=\"<http://o.test/{name}>\""));
    }
    assert_eq!(rewritten(text), expected);
}

#[test]
fn server_control_and_part_tags_are_kept() {
    let text = "#EXTM3U\n#EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,CAN-SKIP-UNTIL=12\n#EXT-X-PART-INF:PART-TARGET=1\n#EXT-X-SKIP:SKIPPED-SEGMENTS=3\n#EXT-X-BYTERANGE:9@0\n";
    assert_eq!(rewritten(text), text);
}

#[test]
fn keys_data_and_steering_of_a_session() {
    let text = "#EXT-X-SESSION-KEY:METHOD=AES-128,URI=\"k\"\n#EXT-X-SESSION-DATA:DATA-ID=\"x\",URI=\"d\"\n#EXT-X-CONTENT-STEERING:SERVER-URI=\"s\",PATHWAY-ID=\"A\"\n";
    let out = rewritten(text);
    for name in ["k", "d", "s"] {
        assert!(out.contains(&format!("URI=\"<http://o.test/{name}>\"")), "{out}");
    }
}

#[test]
fn definitions_stay_before_their_uses() {
    let text = "#EXTM3U\n#EXT-X-DEFINE:NAME=\"a\",VALUE=\"b\"\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nx\n";
    assert_eq!(rewritten(text), text.replace("\nx\n", "\n<http://o.test/x>\n"));
}

#[test]
fn attributes_and_names_of_channels() {
    let text = "#EXTM3U url-tvg=\"http://g.test/e\"\n#EXTINF:-1 tvg-id=\"a\" tvg-logo=\"http://l.test/x.png\" group-title=\"News, all\",Channel \u{fc}\nhttp://c.test/1\n";
    let expected =
        text.replace("http://g.test/e", "<http://g.test/e>").replace("\nhttp://c.test/1", "\n<http://c.test/1>");
    assert_eq!(rewritten(text), expected);
}

/// The manifest as rewritten for DASH players, with `<Kind address>` in the place of URLs.
fn mpd_out(text: &str, decrypted: bool) -> interflow_types::Result<String> {
    let mut root = xml::read(text.as_bytes()).unwrap();
    let manifest = model::read(&root, &BaseUrl::parse("http://o.test/d/m.mpd").unwrap()).unwrap();
    to_mpd::rewrite(&mut root, &manifest, "http://us/m.mpd", decrypted, u64::MAX, &mut |wanted| match wanted {
        to_mpd::ManifestUrlKind::Init(addresses, range) => format!("[init {} {range:?}]", addresses[0]),
        to_mpd::ManifestUrlKind::Segment { addresses, .. } => format!("[segment {}]", addresses[0]),
        to_mpd::ManifestUrlKind::Clock(address) => format!("[clock {address}]"),
        to_mpd::ManifestUrlKind::Key(address) => format!("[key {address}]"),
    })?;
    let mut out = String::new();
    root.write(&mut out);
    Ok(out)
}

fn one_set(inside: &str) -> String {
    format!("<MPD mediaPresentationDuration='PT8S'><Period><AdaptationSet {inside}</AdaptationSet></Period></MPD>")
}

#[test]
fn an_initialization_section_in_another_file_stays_there() {
    let set = |init: &str| {
        let text = format!(
            "mimeType='video/mp4'><Representation id='v'><BaseURL>v.mp4</BaseURL><SegmentBase indexRange='10-20'><Initialization {init}/></SegmentBase></Representation>"
        );
        mpd_out(&one_set(&text), false).unwrap()
    };
    let out = set("sourceURL='i.mp4' range='3-9'");
    assert!(out.contains("<Initialization sourceURL=\"[init http://o.test/d/i.mp4 Some((3, 9))]\"/>"), "{out}");
    let out = set("range='3-9'");
    assert!(out.contains("<Initialization range=\"3-9\"/>"), "{out}");
}

#[test]
fn offsets_of_the_presentation_may_be_negative() {
    let text = one_set(
        "mimeType='video/mp4'><Representation id='v'><SegmentTemplate timescale='10' presentationTimeOffset='-23' media='$Time$'><SegmentTimeline><S t='0' d='40'/></SegmentTimeline></SegmentTemplate></Representation>",
    );
    let out = mpd_out(&text, false).unwrap();
    assert!(out.contains("presentationTimeOffset=\"-23\""), "{out}");
    let manifest = read(&text);
    let period = &manifest.periods[0];
    let listed = segments::list(&period.sets[0].representations[0], period, &manifest, 0.0).unwrap();
    assert!((listed[0].start - 2.3).abs() < 1e-9, "{listed:?}");
}

#[test]
fn media_of_an_unknown_type_is_addressed_through_the_gateway() {
    let out = mpd_out(
        "<MPD mediaPresentationDuration='PT8S'><Period><SegmentList duration='4'><SegmentURL media='a'/><SegmentURL media='b'/></SegmentList>\
         <AdaptationSet mimeType='application/octet-stream' codecs='raw'><Representation id='x'><BaseURL>x/</BaseURL></Representation></AdaptationSet></Period></MPD>",
        false,
    )
    .unwrap();
    assert!(out.contains("[segment http://o.test/d/x/a]") && out.contains("[segment http://o.test/d/x/b]"), "{out}");
    assert!(!out.contains("<BaseURL>"), "{out}");
}

#[test]
fn nothing_in_a_manifest_leads_past_the_gateway() {
    let out = mpd_out(
        "<MPD type='dynamic' availabilityStartTime='2026-01-01T00:00:00Z'><ServiceDescription id='0'><ContentSteering>http://s.test/</ContentSteering><Latency target='3'/></ServiceDescription>\
         <Period id='1' start='PT0S'><EventStream schemeIdUri='e'><Event id='1'><ReplacePresentation uri='http://x.test/r.mpd'/></Event><Event id='2'>x</Event></EventStream>\
         <AdaptationSet mimeType='video/mp4'><Representation id='v'><SegmentTemplate media='$Number$' duration='4'/></Representation></AdaptationSet></Period>\
         <Period id='2' start='PT8S'><ImportedMPD>http://x.test/i.mpd</ImportedMPD></Period>\
         <UTCTiming schemeIdUri='urn:mpeg:dash:utc:http-iso:2014' value='/time.txt http://t.test/'/>\
         <UTCTiming schemeIdUri='urn:mpeg:dash:utc:ntp:2014' value='ntp.test'/>\
         <UTCTiming schemeIdUri='urn:mpeg:dash:utc:direct:2014' value='2026-01-01T00:00:00Z'/></MPD>",
        false,
    )
    .unwrap();
    for gone in ["ContentSteering", "ReplacePresentation", "ImportedMPD", "x.test", "ntp"] {
        assert!(!out.contains(gone), "{gone}: {out}");
    }
    assert!(out.contains("value=\"[clock http://o.test/time.txt] [clock http://t.test/]\""), "{out}");
    for kept in ["Latency", "Event id=\"2\"", "utc:direct"] {
        assert!(out.contains(kept), "{kept}: {out}");
    }
}

#[test]
fn segments_that_are_encrypted_as_a_whole_are_never_taken_for_clear_ones() {
    let text = |key: &str| {
        one_set(&format!(
            "mimeType='video/mp4'><ContentProtection schemeIdUri='urn:mpeg:dash:sea:2012'><sea:SegmentEncryption xmlns:sea='urn:mpeg:dash:schema:sea:2012' schemeIdUri='urn:mpeg:dash:sea:aes128-cbc:2013'/>\
             <sea:CryptoPeriod xmlns:sea='urn:mpeg:dash:schema:sea:2012' IV='0x1' keyUriTemplate='{key}'/></ContentProtection>\
             <Representation id='v'><SegmentTemplate media='$Number$' duration='4'/></Representation>"
        ))
    };
    for decrypted in [false, true] {
        let out = mpd_out(&text("license"), decrypted).unwrap();
        assert!(out.contains("keyUriTemplate=\"[key http://o.test/d/license]\""), "{out}");
    }
    let refused = mpd_out(&text("k$Number$"), false).unwrap_err().to_string();
    assert!(refused.contains("keyUriTemplate"), "{refused}");
    let refused = to_hls::check_encryption(&read(&text("license"))).unwrap_err().to_string();
    assert!(refused.contains("urn:mpeg:dash:sea:2012") && refused.contains("manifest.mpd"), "{refused}");
}
